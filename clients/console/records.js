/** A topic's records as they are in Kafka: newest first, and those that are written; from an offset, a time, with a text. */

import { button, choice, element, field, hint, reading, say } from "./dom.js";
import { exportBar } from "./download.js";
import { chosenIn, fieldChooser } from "./fields.js";
import { count } from "./format.js";
import { hasText, openLog } from "./log.js";
import { every } from "./polling.js";
import { guarded } from "./problem.js";
import { recordTable } from "./recordtable.js";
import { Failed, pathOf, read } from "./session.js";
import { topicForm, topicHead } from "./topicbar.js";

const STARTS = [["newest", "the newest record"], ["oldest", "the oldest record"], ["offset", "an offset"], ["time", "a time"]];
const ON_A_PAGE = 50;
/** How many records one search looks at before it asks whether to go on. */
const LOOKED = 5000;
const EXPORT_PAGE = 500;
/** More partitions are read one at a time: each costs requests before the first record is shown. */
const MOST_PARTITIONS = 64;
const FOLLOW_S = 2;
/** Each partition is a request, on AWS an invocation: many are followed less often. */
const REQUESTS_PER_S = 8;
const MOST_FOLLOWED = 500;

function form(params) {
  const given = (name) => params.get(name) ?? "";
  return topicForm(params, "records", [
    field("Partition", { name: "partition", value: given("partition"), type: "number", min: 0, placeholder: "all" }),
    choice("Start at", "start", STARTS, params.get("start") ?? "newest"),
    field("Offset or time", { name: "at", value: given("at"), placeholder: "2026-11-21T10:00:00Z" }),
    field("Contains", { name: "text", value: given("text"), type: "search", placeholder: "in key, value, headers" }),
  ], "Read");
}

async function partitionsOf(topic, wanted, signal) {
  if (wanted !== null && wanted !== "") return [Number(wanted)];
  const { partitions } = await read(pathOf("topics", topic, "partitions"), {}, signal);
  return partitions.map((each) => each.partition);
}

/** What is wrong with the place to begin at, if anything. */
function faultOf({ kind, value }) {
  if (kind === "offset" && !/^\d{1,18}$/.test(value)) return "Start at an offset needs a number.";
  if (kind === "time" && !value) return "Start at a time needs one, such as 2026-11-21T10:00:00Z.";
  return null;
}

export async function show(main, params, signal) {
  const topic = topicHead(main, params, "records", (name) => `Records of ${name}`);
  if (!topic) return;
  const place = element("section", { "aria-label": "Records" }, reading());
  main.append(form(params), place);
  const begin = { kind: params.get("start") ?? "newest", value: params.get("at") ?? "" };
  await guarded(place, async () => {
    const fault = faultOf(begin);
    const partitions = fault ? [] : await partitionsOf(topic, params.get("partition"), signal);
    if (fault || partitions.length > MOST_PARTITIONS) {
      place.replaceChildren(element("p", {}, fault ?? `The topic has ${count(partitions.length)} partitions: choose one.`));
      return;
    }
    const open = () => openLog(topic, partitions, begin, signal);
    await new Shown(topic, place, { open, begin, text: params.get("text") ?? "", fields: chosenIn(params) }).follow(partitions.length, signal);
  });
}

/** The records that are shown: pages of older ones behind them and, newest first, those that are written before them. */
class Shown {
  constructor(topic, place, { open, begin, text, fields }) {
    Object.assign(this, { topic, place, open, text, fields, isNewestFirst: begin.kind === "newest", records: [], waiting: [], looked: 0, isEnd: false, isFollowed: begin.kind === "newest" });
    this.isWanted = (record) => !text || hasText(record, text);
    this.bar = exportBar(topic, { shown: () => this.records, fields: () => this.fields, all: () => this.all() });
    this.toggle = button([element("span", { class: "dot", "aria-hidden": "true" }), "Live"], () => this.setFollowed(!this.isFollowed), { "aria-pressed": String(this.isFollowed) });
    this.trouble = element("span", { class: "hint", role: "status" });
    this.fresh = button("", () => this.showWaiting(), { class: "main", hidden: true });
  }

  async *all() {
    const { take } = await this.open();
    for (let page = { isEnd: false }; !page.isEnd; ) {
      page = await take(EXPORT_PAGE, this.isWanted, LOOKED);
      yield page.records;
    }
  }

  /** Show the first page, then what is written, until `signal`. */
  async follow(partitionCount, signal) {
    const log = await this.open();
    this.take = log.take;
    await this.next();
    if (!this.isNewestFirst) return;
    await every(Math.max(FOLLOW_S, partitionCount / REQUESTS_PER_S), signal, async () => {
      if (!this.isFollowed) return;
      try {
        this.add((await log.newer()).filter(this.isWanted));
        this.trouble.textContent = "";
      } catch (error) {
        if (!(error instanceof Failed)) throw error;
        this.trouble.textContent = "Not live: trying again";
      }
    });
  }

  setFollowed(isFollowed) {
    this.isFollowed = isFollowed;
    this.toggle.setAttribute("aria-pressed", String(isFollowed));
  }

  /** New records come in by themselves unless somebody reads further down, has one open, or works in the table. */
  add(found) {
    if (!found.length) return;
    this.waiting = [...found, ...this.waiting].slice(0, MOST_FOLLOWED);
    const table = this.place.querySelector(".scroll");
    const isRead = table && (table.getBoundingClientRect().top < 0 || table.querySelector("details[open]") || table.matches(":focus-within"));
    if (isRead) {
      this.fresh.textContent = `Show ${count(this.waiting.length)} new ${this.waiting.length === 1 ? "record" : "records"}`;
      this.fresh.hidden = false;
    } else this.showWaiting();
  }

  showWaiting() {
    // So many are kept: a page that is open for days stays as fast. Older ones are read again by a reload.
    const room = Math.max(MOST_FOLLOWED, this.records.length);
    if (this.waiting.length + this.records.length > room) this.isCut = true;
    const added = new Set(this.waiting);
    this.records = [...this.waiting, ...this.records].slice(0, room);
    this.waiting = [];
    this.fresh.hidden = true;
    this.draw(null, added);
    say(`${count(added.size)} new records`);
  }

  async next() {
    const found = await this.take(ON_A_PAGE, this.isWanted, this.text ? LOOKED : Infinity);
    this.records.push(...found.records);
    this.looked += found.looked;
    this.isEnd = found.isEnd;
    this.draw();
    say(`${count(this.records.length)} records are shown`);
  }

  more() {
    if (this.isCut) return element("span", { class: "hint" }, "Older records are no longer shown: read again.");
    if (this.isEnd) return element("span", { class: "hint" }, "These are all.");
    const label = this.text ? `Look at ${count(LOOKED)} more` : this.isNewestFirst ? "Older records" : "Later records";
    return button(label, () => guarded(this.place, () => this.next()), { class: "main" });
  }

  draw(focused, added = new Set()) {
    const { records, fields, text } = this;
    const caption = `${count(records.length)} ${records.length === 1 ? "record" : "records"}, ${this.isNewestFirst ? "newest first" : "oldest first"}`;
    const table = records.length ? recordTable(caption, this.topic, records, fields, true) : element("p", {}, text ? "None of them has this text." : "There are no records here.");
    if (added.size) table.querySelectorAll("tbody tr").forEach((row, index) => added.has(records[index]) && row.classList.add("fresh"));
    this.place.replaceChildren(
      element("div", { class: "row head" }, element("h2", {}, caption), this.isNewestFirst ? this.toggle : "", this.fresh, this.trouble),
      ...[text && hint(`${count(this.looked)} were looked at for “${text}”.`),
        records.length ? fieldChooser(records, fields, (chosen, name) => { this.fields = chosen; this.draw(name); }) : null,
        records.length ? this.bar : null,
        table].filter(Boolean),
      element("p", { class: "row" }, this.more()));
    if (focused) this.place.querySelector(`[data-field="${CSS.escape(focused)}"]`)?.focus();
  }
}
