/** A key's records as a timeline, each with what it changed. */

import { changes } from "./difference.js";
import { badge, element, hint } from "./dom.js";
import { time } from "./format.js";
import { inline, shown, valueText, write } from "./json.js";

const SHOWN_CHANGES = 40;
const TEXT_LIMIT = 400;

function brief(value) {
  const text = inline(value);
  return text.length > TEXT_LIMIT ? `${text.slice(0, TEXT_LIMIT)} …` : text;
}

function changeItem({ path, before, after }) {
  const name = element("code", { class: "path" }, path);
  if (before === undefined) return element("li", {}, name, " added: ", element("ins", {}, brief(after)));
  if (after === undefined) return element("li", {}, name, " removed: ", element("del", {}, brief(before)));
  return element("li", {}, name, ": ", element("del", {}, brief(before)), element("span", { "aria-label": "became" }, " → "), element("ins", {}, brief(after)));
}

/** One record. `earlier` is the record before it; null: there was none; undefined: it is not known. */
export function entry(record, earlier) {
  const found = record.deleted || !earlier || earlier.deleted ? [] : changes(earlier.value, record.value);
  const isFirst = earlier === null || earlier?.deleted;
  return element(
    "li",
    { class: record.deleted ? "deleted" : "" },
    element("p", { class: "when" }, element("time", {}, time(record.timestamp)), " ", element("span", { class: "hint" }, `position ${record.position}`), " ",
      record.deleted ? badge("deleted", "bad") : isFirst ? badge("created", "good") : earlier && !found.length ? badge("written again, unchanged") : null),
    found.length > 0 && element("ul", { class: "changes" }, found.slice(0, SHOWN_CHANGES).map(changeItem)),
    found.length > SHOWN_CHANGES && hint(`and ${found.length - SHOWN_CHANGES} more`),
    !record.deleted && element("details", {}, element("summary", {}, "Value"), shown(valueText(record, write), `Value at ${record.position}`)),
  );
}

/** Records newest first; `isEnd`: nothing is older than the last of them. */
export function timeline(records, isEnd) {
  return records.map((each, index) => entry(each, records[index + 1] ?? (isEnd ? null : undefined)));
}
