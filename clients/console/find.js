/** Records of a topic by the fields of their values: conditions, an order, their number, and pages of them. */

import { choice, element, field, reading, say } from "./dom.js";
import { chosenIn } from "./fields.js";
import { count } from "./format.js";
import { ON_A_PAGE, pager } from "./pages.js";
import { guarded } from "./problem.js";
import { Failed, pathOf, read } from "./session.js";
import { topicForm, topicHead, topicLink } from "./topicbar.js";

/** So many of the topic's fields are columns until others are chosen. */
const COLUMNS = 4;
const EXAMPLES = { text: "open or op*", texts: "gift", number: "10..20", time: "2026-11-01..<2026-12-01" };
const ANY_OF = [["", "any"], ["true", "true"], ["false", "false"]];

/** Conditions have a dot in the address, as they may have in the API: a field may be called as a parameter is. */
const conditionsIn = (params) => [...params].filter(([name, value]) => name.startsWith(".") && value !== "");

/** Those of the question come first. */
function firstColumns(params, declared) {
  const order = (params.get("order") ?? "").replace(/^-/, "");
  const asked = new Set([order, ...conditionsIn(params).map(([name]) => name.slice(1))]);
  const names = declared.map(([name]) => name);
  return names.sort((one, other) => asked.has(other) - asked.has(one)).slice(0, COLUMNS);
}

const queryOf = (params) => [...conditionsIn(params), ...["prefix", "order"].map((name) => [name, params.get(name) ?? ""])];

function conditionFields(params, [name, kind]) {
  const given = params.getAll(`.${name}`);
  const label = `${name} (${kind})`;
  return (given.length ? given : [""]).map((value) =>
    kind === "boolean"
      ? choice(label, `.${name}`, ANY_OF.some(([each]) => each === value) ? ANY_OF : [...ANY_OF, [value, value]], value)
      : field(label, { name: `.${name}`, value, placeholder: EXAMPLES[kind] }));
}

function orders(fields) {
  const single = fields.filter(([, kind]) => kind !== "texts").map(([name]) => name);
  return [["", "none"], ...single.flatMap((name) => [[name, `${name}, lowest first`], [`-${name}`, `${name}, highest first`]])];
}

function form(params, fields) {
  const known = orders(fields);
  const order = params.get("order") ?? "";
  const isAsked = conditionsIn(params).length > 0 || order !== "";
  return topicForm(params, "find", [
    fields.map((each) => conditionFields(params, each)),
    field("Key begins with", { name: "prefix", value: params.get("prefix") ?? "", placeholder: "any" }),
    choice("Order", "order", known.some(([each]) => each === order) ? known : [...known, [order, order]], order),
    field("On a page", { name: "limit", value: params.get("limit") ?? ON_A_PAGE, type: "number", min: 1, max: 1000 }),
  ], "Find", !isAsked);
}

const HINT = [["open", "that value"], ["10..20", "a range; 10.. has no end, ..20 no begin"], ["..<20", "without its end"], ["Sm*", "texts that begin so"], ["..", "any value"]];
const hint = () => element("p", { class: "hint" }, "Conditions: ", HINT.flatMap(([spelled, meaning], number) => [number ? "; " : "", element("code", {}, spelled), ` ${meaning}`]), ". All have to be met.");

function withoutFields(topic) {
  return element("p", {}, `No field of ${topic} is named, so its records can not be found by any: name them in `, element("code", {}, `[topics.${topic}.fields]`), " of keylane.toml. The log can be searched for a text: ", element("a", { href: topicLink(topic) }, `Records of ${topic}`), ".");
}

/** How many records meet the conditions: of what one request looked at, where that was not all. */
async function showNumber(topic, query, place, signal) {
  try {
    const found = await read(pathOf("topics", topic, "find"), [...query, ["count", "true"]], signal);
    const number = `${count(found.count)} ${found.count === 1 ? "record meets" : "records meet"} the conditions`;
    place.replaceChildren(found.next ? `At least ${number}: ${count(found.scanned)} entries of an index were looked at.` : `${number}.`);
  } catch (error) {
    // The page says why.
    if (!(error instanceof Failed) && error.name !== "AbortError") throw error;
  }
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "find", (name) => `Find in ${name}`);
  if (!topic) return;
  const top = element("div");
  main.append(top);
  const total = element("p", { class: "hint" });
  const place = element("section", { "aria-label": "Records" }, reading());
  main.append(total, place);
  await guarded(place, async () => {
    const { options } = await read(pathOf("topics", topic), {}, signal);
    if (!options.fields.length) {
      place.replaceChildren(withoutFields(topic));
      return;
    }
    top.replaceChildren(form(params, options.fields), hint());
    if (!conditionsIn(params).length && !params.get("order")) {
      place.replaceChildren(element("p", {}, "Give a condition, or choose an order."));
      return;
    }
    await showPages(topic, params, options.fields, { total, place, signal });
  });
}

async function showPages(topic, params, declared, { total, place, signal }) {
  const query = queryOf(params);
  const firstPage = pager(topic, place, {
    readPage: (cursor, limit) => read(pathOf("topics", topic, "find"), [...query, ["limit", limit], ["cursor", cursor]], signal),
    limit: params.get("limit") || ON_A_PAGE,
    fields: params.has("fields") ? chosenIn(params) : firstColumns(params, declared),
    noun: "record",
    end: "These are all.",
    empty: (found) => (found.next ? "None of these meets all conditions: the next page looks further." : "No record meets the conditions."),
    above: (found) => element("p", { class: "hint" }, `${count(found.scanned)} entries of an index were looked at.`),
    shown: say,
  });
  showNumber(topic, query, total, signal);
  await firstPage();
}
