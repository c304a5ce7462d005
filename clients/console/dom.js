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

export const hint = (...children) => element("p", { class: "hint" }, ...children);

/** Stands where an answer will. */
export const reading = () => hint("Reading …");

/** Elements side by side. */
export const row = (...children) => element("p", { class: "row" }, ...children);

export const submit = (label) => element("button", { type: "submit", class: "main" }, label);

export const button = (label, onClick, properties) => element("button", { type: "button", ...properties, on: { click: onClick } }, label);

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

/**
 * A table; `rows` hold texts or elements. It scrolls sideways where it has no room; on a phone each row is a card, in
 * which each cell names its column. Roles say what is a table to those who hear it, however it is laid out.
 */
export function table(caption, columns, rows) {
  return tableOf(caption, columns.map((name) => element("th", { scope: "col", role: "columnheader" }, name)), rows.map((row) => tableRow(columns, row)));
}

export const tableRow = (columns, cells) => element("tr", { role: "row" }, cells.map((cell, index) => element("td", { role: "cell", data: { label: columns[index] } }, content(cell))));

/** What a cell has, as one node: beside the name of its column there is one place. */
export const content = (cell) => (Array.isArray(cell) ? element("div", { class: "marks" }, cell) : cell);

/** The same of heads and rows that are made. */
export const tableOf = (caption, heads, rows) =>
  scrolling(caption, { class: "scroll" },
    element("table", { role: "table" },
      element("caption", { class: "unseen" }, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads)),
      element("tbody", { role: "rowgroup" }, rows)));

/** A form that a phone folds away below a button, unless it `isOpen`. */
export function folding(form, label, isOpen) {
  const toggle = button(label, () => toggle.setAttribute("aria-expanded", String(toggle.getAttribute("aria-expanded") !== "true")), { class: "fold", "aria-expanded": String(isOpen) });
  return element("div", {}, toggle, form);
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
