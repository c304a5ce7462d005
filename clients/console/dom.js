/** Elements from names, properties and children. Text is always text: nothing here parses HTML. */

const SVG = "http://www.w3.org/2000/svg";

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

export function element(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

export function drawn(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

/** Say something to those who listen to the page. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** Stands where an answer will. */
export const reading = () => element("p", { class: "hint" }, "Reading …");

/** A badge: its word carries the meaning, its colour only repeats it. */
export function badge(word, kind = "plain", title = null) {
  return element("span", { class: `badge ${kind}`, title }, word);
}

/** A list of names and values; values may be elements. Empty values are left out. */
export function facts(pairs) {
  return element(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

/** A table that scrolls sideways where the screen is narrow; `rows` hold texts or elements. */
export function table(caption, columns, rows) {
  return scrolling(
    caption,
    { class: "scroll" },
    element(
      "table",
      {},
      element("caption", { class: "unseen" }, caption),
      element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell))))),
    ),
  );
}

/** A field of a form with its label; `field` is the input's properties. */
export function field(label, properties) {
  return element("label", {}, label, element("input", { autocomplete: "off", spellcheck: "false", ...properties }));
}

export function choice(label, name, options, chosen) {
  return element(
    "label",
    {},
    label,
    element("select", { name }, options.map(([value, text]) => element("option", { value, selected: value === chosen }, text))),
  );
}

export function check(label, name, checked) {
  return element("label", { class: "check" }, element("input", { type: "checkbox", name, checked }), label);
}

/** A region that scrolls sideways where the screen is narrow: the keyboard scrolls it, too. */
export const scrolling = (label, properties, ...children) => element("div", { tabindex: "0", role: "region", "aria-label": label, ...properties }, ...children);
