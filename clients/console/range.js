/** Keys in order: a prefix or a range, in pages. */

import { check, element, field, reading, table } from "./dom.js";
import { time } from "./format.js";
import { valueText } from "./json.js";
import { guarded } from "./problem.js";
import { pathOf, read } from "./session.js";

const CELL_CHARACTERS = 160;
const NAMES = ["prefix", "from", "to", "as_of", "fields", "limit"];

function keyLink(topic, record) {
  const query = new URLSearchParams({ topic, key: record.key });
  if (record.key_format === "base64") query.set("base64", "");
  return element("a", { href: `#/key?${query}` }, record.key);
}

function row(topic, record) {
  const text = record.history_too_short ? "(the history is too short)" : valueText(record);
  return [
    keyLink(topic, record),
    element("code", {}, text.length > CELL_CHARACTERS ? `${text.slice(0, CELL_CHARACTERS)} …` : text),
    record.position ?? "–",
    record.timestamp === undefined ? "–" : time(record.timestamp),
  ];
}

function form(params) {
  const given = (name, fallback = "") => params.get(name) ?? fallback;
  return element(
    "form",
    { class: "fields", data: { route: "range" } },
    field("Topic", { name: "topic", value: given("topic"), required: true, list: "topics" }),
    field("Prefix", { name: "prefix", value: given("prefix") }),
    field("From", { name: "from", value: given("from") }),
    field("To, exclusive", { name: "to", value: given("to") }),
    field("As of", { name: "as_of", value: given("as_of"), placeholder: "2026-11-21T10:00:00Z" }),
    field("Fields", { name: "fields", value: given("fields"), placeholder: "origin,dest" }),
    field("On a page", { name: "limit", value: given("limit", "50"), type: "number", min: 1, max: 1000 }),
    check("Keys only", "keys_only", params.has("keys_only")),
    element("button", { type: "submit", class: "main" }, "Read"),
  );
}

export async function show(main, params, signal) {
  const topic = params.get("topic");
  main.append(element("h1", {}, "A range of keys"), form(params));
  if (!topic) return;
  const query = Object.fromEntries(NAMES.map((name) => [name, params.get(name) ?? ""]));
  if (params.has("keys_only")) query.keys_only = "true";
  const place = element("section", { "aria-label": "Records" }, reading());
  main.append(place);
  let number = 0;
  async function page(cursor) {
    const found = await read(pathOf("topics", topic, "keys"), { ...query, cursor }, signal);
    number += 1;
    const caption = `Page ${number}: ${found.records.length} ${found.records.length === 1 ? "key" : "keys"}`;
    const rows = query.keys_only ? found.records.map((each) => [keyLink(topic, each)]) : found.records.map((each) => row(topic, each));
    const next = found.next && element("button", { type: "button", class: "main", on: { click: () => guarded(place, () => page(found.next)) } }, "Next page");
    place.replaceChildren(
      element("h2", { tabindex: "-1" }, caption),
      rows.length ? table(caption, query.keys_only ? ["Key"] : ["Key", "Value", "Position", "Written"], rows) : element("p", {}, "No key lies in this range."),
      element("p", { class: "row" }, next || element("span", { class: "hint" }, "This is the end of the range."), number > 1 && element("button", { type: "button", on: { click: () => { number = 0; guarded(place, () => page("")); } } }, "First page")),
    );
    if (number > 1) place.querySelector("h2").focus();
  }
  await guarded(place, () => page(""));
}
