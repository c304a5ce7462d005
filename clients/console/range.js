/** A topic's keys in order: all, a prefix or a range, in pages, with their number. */

import { check, element, field, reading, table } from "./dom.js";
import { chosenIn } from "./fields.js";
import { count } from "./format.js";
import { ON_A_PAGE, pager } from "./pages.js";
import { guarded } from "./problem.js";
import { keyLink } from "./recordtable.js";
import { Failed, pathOf, read } from "./session.js";
import { topicForm, topicHead, topicLink } from "./topicbar.js";

const NAMES = ["prefix", "from", "to", "as_of"];

function form(params) {
  const given = (name, fallback = "") => params.get(name) ?? fallback;
  return topicForm(params, "range", [
    field("Prefix", { name: "prefix", value: given("prefix") }),
    field("From", { name: "from", value: given("from") }),
    field("To, exclusive", { name: "to", value: given("to") }),
    field("As of", { name: "as_of", value: given("as_of"), placeholder: "2026-11-21T10:00:00Z" }),
    field("On a page", { name: "limit", value: given("limit", ON_A_PAGE), type: "number", min: 1, max: 1000 }),
    check("Keys only", "keys_only", params.has("keys_only")),
  ], "Read");
}

/** How many keys the topic has; nothing if that can not be known now. */
async function showCount(topic, place, signal) {
  try {
    const { count: number } = await read(pathOf("topics", topic, "count"), { partial: "true" }, signal);
    place.replaceChildren(`The topic has ${count(number)} ${number === 1 ? "key" : "keys"}.`);
  } catch (error) {
    if (!(error instanceof Failed) && error.name !== "AbortError") throw error;
  }
}

/** Without an index there is no order of keys; their records can be read all the same. */
function withoutIndex(topic) {
  return element("p", {}, "Its records are in the log: ", element("a", { href: topicLink(topic) }, `Records of ${topic}`), ".");
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "range", (name) => `Keys of ${name}`);
  if (!topic) return;
  main.append(form(params));
  const query = { ...Object.fromEntries(NAMES.map((name) => [name, params.get(name) ?? ""])), keys_only: params.has("keys_only") ? "true" : "" };
  const total = element("p", { class: "hint" });
  const place = element("section", { "aria-label": "Records" }, reading());
  main.append(total, place);
  const firstPage = pager(topic, place, {
    readPage: (cursor, limit) => read(pathOf("topics", topic, "keys"), { ...query, limit, cursor }, signal),
    limit: params.get("limit") || ON_A_PAGE,
    fields: chosenIn(params),
    noun: "key",
    end: "This is the end of the range.",
    empty: () => "No key lies in this range.",
    table: query.keys_only && ((caption, records) => table(caption, ["Key"], records.map((each) => [keyLink(topic, each)]))),
  });
  showCount(topic, total, signal);
  await guarded(place, async () => {
    try {
      await firstPage();
    } catch (error) {
      if (error.name === "no-index") main.append(withoutIndex(topic));
      throw error;
    }
  });
}
