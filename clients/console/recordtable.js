/** Records as a table: one row each, a value that opens, and fields as columns where some are chosen. */

import { badge, element, facts, table } from "./dom.js";
import { fieldAt } from "./fields.js";
import { time } from "./format.js";
import { inline, shown, valueText, write } from "./json.js";

const CELL_CHARACTERS = 160;
const cut = (text) => (text.length > CELL_CHARACTERS ? `${text.slice(0, CELL_CHARACTERS)} …` : text);

/** The key as it is asked for: a typed one is JSON. */
const keyText = (record) => (typeof record.key === "string" ? record.key : inline(record.key));

export function keyLink(topic, record) {
  if (record.key === null) return element("span", { class: "hint" }, "no key");
  const query = new URLSearchParams({ topic, key: keyText(record) });
  if (record.key_format === "base64") query.set("base64", "");
  return element("a", { href: `#/key?${query}` }, cut(keyText(record)));
}

function headersOf(record) {
  if (!record.headers?.length) return null;
  return facts(record.headers.map(({ name, value }) => [name, value ?? "null"]));
}

function valueCell(record) {
  if (record.history_too_short) return element("span", { class: "hint" }, "the history is too short");
  if (record.value_format === "null") return badge("tombstone", "bad", "Deletes its key");
  const text = valueText(record);
  return element("details", { class: "cell" },
    element("summary", {}, element("code", {}, cut(text))),
    shown(valueText(record, typeof record.value === "string" ? String : write), `Value of ${record.key == null ? record.position : keyText(record)}`),
    headersOf(record));
}

function fieldCell(record, path) {
  const value = fieldAt(record.value, path);
  return value === undefined ? "–" : cut(typeof value === "string" ? value : inline(value));
}

/** `isLog`: by position and time first; else by key. */
export function recordTable(caption, topic, records, fields, isLog) {
  const values = fields.length ? fields : ["Value"];
  const placed = ["Position", "Written"];
  const heads = isLog ? [...placed, "Key", ...values] : ["Key", ...values, ...placed];
  return table(caption, heads, records.map((record) => {
    const cells = fields.length ? fields.map((path) => fieldCell(record, path)) : [valueCell(record)];
    const where = [record.position ?? "–", time(record.timestamp)];
    const key = keyLink(topic, record);
    return isLog ? [...where, key, ...cells] : [key, ...cells, ...where];
  }));
}
