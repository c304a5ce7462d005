/** A topic's records as they are in Kafka: newest first, by partition, from an offset or a time, with a text. */

import { choice, element, field, reading, say } from "./dom.js";
import { exportBar } from "./download.js";
import { chosenIn, fieldChooser } from "./fields.js";
import { count } from "./format.js";
import { hasText, openLog } from "./log.js";
import { guarded } from "./problem.js";
import { recordTable } from "./recordtable.js";
import { pathOf, read } from "./session.js";
import { topicField, topicTabs } from "./topicbar.js";

const STARTS = [["newest", "the newest record"], ["oldest", "the oldest record"], ["offset", "an offset"], ["time", "a time"]];
const ON_A_PAGE = 50;
/** How many records one search looks at before it asks whether to go on. */
const LOOKED = 5000;
const EXPORT_PAGE = 500;
/** More partitions are read one at a time: each costs requests before the first record is shown. */
const MOST_PARTITIONS = 64;

function form(params) {
  const given = (name) => params.get(name) ?? "";
  return element("form", { class: "fields", data: { route: "records" } },
    topicField(params),
    field("Partition", { name: "partition", value: given("partition"), type: "number", min: 0, placeholder: "all" }),
    choice("Start at", "start", STARTS, params.get("start") ?? "newest"),
    field("Offset or time", { name: "at", value: given("at"), placeholder: "2026-11-21T10:00:00Z" }),
    field("Contains", { name: "text", value: given("text"), type: "search", placeholder: "in key, value, headers" }),
    element("button", { type: "submit", class: "main" }, "Read"));
}

async function partitionsOf(topic, wanted, signal) {
  if (wanted !== null && wanted !== "") return [Number(wanted)];
  const { partitions } = await read(pathOf("topics", topic, "partitions"), {}, signal);
  return partitions.map((each) => each.partition);
}

export async function show(main, params, signal) {
  const topic = params.get("topic") ?? "";
  main.append(element("h1", {}, topic ? `Records of ${topic}` : "Records"), topicTabs(topic, "records"), form(params));
  if (!topic) return;
  const place = element("section", { "aria-label": "Records" }, reading());
  main.append(place);
  const text = params.get("text") ?? "";
  const begin = { kind: params.get("start") ?? "newest", value: params.get("at") ?? "" };
  const isWanted = (record) => !text || hasText(record, text);
  let fields = chosenIn(params);
  await guarded(place, async () => {
    if ((begin.kind === "offset" && !/^\d{1,18}$/.test(begin.value)) || (begin.kind === "time" && !begin.value)) {
      place.replaceChildren(element("p", {}, `Start at ${begin.kind === "time" ? "a time needs one, such as 2026-11-21T10:00:00Z" : "an offset needs a number"}.`));
      return;
    }
    const partitions = await partitionsOf(topic, params.get("partition"), signal);
    if (partitions.length > MOST_PARTITIONS) {
      place.replaceChildren(element("p", {}, `The topic has ${count(partitions.length)} partitions: choose one.`));
      return;
    }
    const take = await openLog(topic, partitions, begin, signal);
    const records = [];
    let looked = 0;
    let isEnd = false;
    const bar = exportBar(topic, {
      shown: () => records,
      fields: () => fields,
      async *all() {
        const takeAll = await openLog(topic, partitions, begin, signal);
        for (let page = { isEnd: false }; !page.isEnd; ) {
          page = await takeAll(EXPORT_PAGE, isWanted, LOOKED);
          yield page.records;
        }
      },
    });
    const draw = (focused) => {
      const order = begin.kind === "newest" ? "newest first" : "oldest first";
      const caption = `${count(records.length)} ${records.length === 1 ? "record" : "records"}, ${order}`;
      const more = isEnd ? element("span", { class: "hint" }, "These are all.") : element("button", { type: "button", class: "main", on: { click: () => guarded(place, next) } }, text ? `Look at ${count(LOOKED)} more` : begin.kind === "newest" ? "Older records" : "Later records");
      place.replaceChildren(
        element("h2", {}, caption),
        ...[text && element("p", { class: "hint" }, `${count(looked)} were looked at for “${text}”.`),
          records.length ? fieldChooser(records, fields, (chosen, name) => { fields = chosen; draw(name); }) : null,
          records.length ? bar : null,
          records.length ? recordTable(caption, topic, records, fields, true) : element("p", {}, text ? "None of them has this text." : "There are no records here.")].filter(Boolean),
        element("p", { class: "row" }, more));
      if (focused) place.querySelector(`[data-field="${CSS.escape(focused)}"]`)?.focus();
    };
    async function next() {
      const found = await take(ON_A_PAGE, isWanted, text ? LOOKED : Infinity);
      records.push(...found.records);
      looked += found.looked;
      isEnd = found.isEnd;
      draw();
      say(`${count(records.length)} records are shown`);
    }
    await next();
  });
}
