/** A view: the windows of one key as a chart, and as a table. */

import { columns } from "./charts.js";
import { badge, button, choice, element, facts, field, folding, hint, reading, submit, table } from "./dom.js";
import { age, count, day, time } from "./format.js";
import { inline } from "./json.js";
import { guarded } from "./problem.js";
import { pathOf, read } from "./session.js";
import { topicLink } from "./topicbar.js";

const KEYS = 40;
const FIRST_WINDOWS = 1000;
const WINDOWS = 366;
/** Padding and border of a chart, in pixels. */
const CHART_EDGES = 30;
const NUMERIC = ["count", "sum", "min", "max", "avg"];

const link = (params) => `#/view?${new URLSearchParams(params)}`;

function durationOf(ms) {
  const [unit, size] = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]].find(([, each]) => ms >= each && ms % each === 0) ?? ["ms", 1];
  return `${ms / size} ${unit}`;
}

function windowText({ kind, size_ms: size, every_ms: step }) {
  if (kind === "none") return "none: totals";
  if (kind === "session") return `sessions, closed after ${durationOf(size)}`;
  return `${kind}, ${durationOf(size)}${step ? ` every ${durationOf(step)}` : ""}`;
}

const columnText = ({ name, kind, path, by }) => `${name} = ${kind}(${path ?? ""}${by ? `, by ${by}` : ""})`;

function definition(view) {
  return element("div", {},
    element("p", { class: "marks" }, view.building ? badge("building", "warn") : null, view.incomplete ? badge("incomplete", "bad") : null, !view.building && !view.incomplete ? badge("complete", "good") : null),
    facts([
      ["Topic", element("a", { href: topicLink(view.topic) }, view.topic)],
      ["By", view.key ?? "the record's key"], ["Windows", windowText(view.window)], ["Where", view.where],
      ["Age", age(view.age_ms)], ["Event time", view.event_time === undefined ? null : time(view.event_time)],
      ["Late", count(view.late)], ["Invalid", count(view.invalid)],
    ]),
    hint(`Columns: ${view.columns.map(columnText).join(", ")}`));
}

/** Keys that the view has, to begin with: those of its first windows, in order. */
async function offerKeys(view, chosen, column, signal) {
  const { windows } = await read(pathOf("views", view, "keys"), { limit: FIRST_WINDOWS, partial: "true" }, signal);
  const all = [...new Set(windows.map((each) => each.key))];
  const keys = all.slice(0, KEYS);
  const links = keys.map((key) => element("li", {}, element("a", { class: "button", href: link({ view, key, column }), "aria-current": key === chosen ? "true" : null }, key)));
  const why = windows.length < FIRST_WINDOWS && all.length <= KEYS ? "The keys of the view:" : `The first ${keys.length === 1 ? "key" : `${keys.length} keys`} of the view in order. It may have more: enter any other above.`;
  return { keys, list: element("div", {}, hint(why), element("ul", { class: "picks", "aria-label": "Keys" }, links)) };
}

function chart(windows, column, room) {
  const bars = windows.map((each) => {
    const value = each.values[column];
    return { start: each.start, final: each.final, value: value === null || value === undefined || Number.isNaN(Number(value)) ? null : Number(value) };
  });
  return columns(bars, `${column} of ${bars.length} windows from ${day(bars[0].start)} to ${day(bars.at(-1).start)}; the table below has the numbers`, room);
}

const textOf = (value) => (typeof value === "string" ? value : value === undefined ? "–" : inline(value));

function windowTable(windows, names) {
  const hasTime = windows[0].start !== undefined;
  const heads = [...(hasTime ? ["Start", "End"] : []), ...names, "State"];
  return table("Windows", heads, windows.map((each) => [
    ...(hasTime ? [day(each.start), day(each.end)] : []),
    ...names.map((name) => textOf(each.values[name])),
    each.final ? "final" : "may change",
  ]));
}

function form(params, names) {
  return folding(element(
    "form",
    { class: "fields", data: { route: "view" } },
    element("input", { type: "hidden", name: "view", value: params.get("view") }),
    field("Key", { name: "key", value: params.get("key") ?? "" }),
    choice("Column", "column", names.map((name) => [name, name]), params.get("column")),
    field("From", { name: "from", value: params.get("from") ?? "", placeholder: "2013-07-01" }),
    field("To, exclusive", { name: "to", value: params.get("to") ?? "", placeholder: "2013-08-01" }),
    submit("Show"),
  ), `Shown: ${params.get("key")}, ${params.get("column")}`, false);
}

async function showWindows(place, view, chosen, signal) {
  const shownWindows = [];
  async function page(cursor) {
    const query = { from: chosen.from, to: chosen.to, limit: WINDOWS, cursor, partial: "true" };
    const found = await read(pathOf("views", view.view, "keys", chosen.key), query, signal);
    shownWindows.push(...found.windows);
    const names = view.columns.map((each) => each.name);
    const more = found.next && button("Later windows", () => guarded(place, () => page(found.next)));
    const bars = shownWindows.length && shownWindows[0].start !== undefined ? chart(shownWindows, chosen.column, place.clientWidth - CHART_EDGES) : "";
    place.replaceChildren(
      element("h2", {}, `${chosen.column} of ${chosen.key}`),
      ...(shownWindows.length
        ? [bars, bars && hint("Pale columns may still change."), more || "", element("details", { open: !bars }, element("summary", {}, "As a table"), windowTable(shownWindows, names))]
        : [element("p", {}, "This key has no windows in this time.")]),
    );
  }
  await page("");
}

/** All views, to choose one. */
function listed(views) {
  if (!views.length) return hint("There are no views. keylane.toml defines them.");
  return table("Views", ["View", "Topic", "Windows", "Columns"], views.map((each) => [
    element("a", { href: link({ view: each.view }) }, each.view),
    element("a", { href: topicLink(each.topic) }, each.topic),
    windowText(each.window),
    each.columns.join(", "),
  ]));
}

export async function show(main, params, signal) {
  const name = params.get("view") ?? "";
  if (!name) {
    const list = element("div", {}, reading());
    main.append(element("h1", {}, "Views"), list);
    await guarded(list, async () => list.replaceChildren(listed((await read("/views", {}, signal)).views)));
    return;
  }
  const top = element("div", {}, reading());
  main.append(element("h1", {}, `View ${name}`), top);
  await guarded(top, async () => {
    const view = await read(pathOf("views", name), {}, signal);
    const numeric = view.columns.filter((each) => NUMERIC.includes(each.kind)).map((each) => each.name);
    const column = params.get("column") || numeric[0] || view.columns[0].name;
    const { keys, list } = await offerKeys(name, params.get("key"), column, signal);
    const key = params.get("key") || keys[0] || "";
    list.querySelectorAll("a").forEach((each) => each.textContent === key && each.setAttribute("aria-current", "true"));
    const filled = new URLSearchParams(params);
    filled.set("key", key);
    filled.set("column", column);
    const windows = element("section", { "aria-label": "Chart and windows" }, reading());
    top.replaceChildren(form(filled, numeric.length ? numeric : view.columns.map((each) => each.name)), list, windows, element("h2", {}, "Definition"), definition(view));
    if (key) await guarded(windows, () => showWindows(windows, view, { key, column, from: params.get("from") ?? "", to: params.get("to") ?? "" }, signal));
    else windows.replaceChildren(element("p", {}, "The view has no windows yet."));
  });
}
