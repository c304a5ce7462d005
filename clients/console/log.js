/**
 * A topic's log: newest first, or on from its start, an offset or a time; of one partition, or of several by their
 * timestamps; and what is written from now on. The API reads a partition forwards, so newest first is read in
 * stretches from the end.
 */

import { inline } from "./json.js";
import { Failed, pathOf, read } from "./session.js";

const STRETCH = 40;
const MOST_STRETCH = 1000;
/** Of new records of a partition so many are read at once; those before them are skipped. */
const MOST_NEW = 200;
/** The function `explore` runs four requests at a time. */
const AT_A_TIME = 4;

async function inTurns(tasks) {
  const left = [...tasks];
  await Promise.all(Array.from({ length: AT_A_TIME }, async () => {
    for (let task = left.shift(); task; task = left.shift()) await task();
  }));
}

class Cursor {
  constructor(topic, partition, signal) {
    this.path = (what) => pathOf("topics", topic, "partitions", partition, what);
    this.signal = signal;
    this.ahead = [];
    this.stretch = STRETCH;
  }

  /** `begin`: {kind: "newest"|"oldest"|"offset"|"time", value}. The end is that of now. */
  async open({ kind, value }) {
    const { watermarks } = await read(this.path("records"), { offset: "latest", limit: 1 }, this.signal);
    [this.from, this.to] = [Number(watermarks.low), Number(watermarks.high)];
    this.end = this.to;
    this.isBackwards = kind === "newest";
    if (kind === "offset") this.from = Math.min(Math.max(Number(value), this.from), this.to);
    if (kind === "time") {
      const { offset } = await read(this.path("offsets"), { at: value }, this.signal);
      this.from = offset === null ? this.to : Number(offset);
    }
  }

  get isEmpty() {
    return !this.ahead.length && this.from >= this.to;
  }

  /** Records from one offset on and before another; offsets without a record are skipped. */
  async #between(from, to) {
    const found = [];
    for (let at = from; at < to; ) {
      const page = await read(this.path("records"), { offset: at, limit: Math.min(to - at, MOST_STRETCH) }, this.signal);
      found.push(...page.records.filter((each) => each.offset < to));
      if (page.next_offset <= at) break;
      at = page.next_offset;
    }
    return found;
  }

  /** Records that were written since the last call, or since the cursor was opened. */
  async newer() {
    const ask = (offset) => read(this.path("records"), { offset, limit: MOST_NEW }, this.signal);
    let page;
    try {
      page = await ask(this.end);
    } catch (error) {
      // Retention has removed it, or the topic was made again: what is there now counts.
      if (!(error instanceof Failed) || error.name !== "offset-out-of-range") throw error;
      page = await ask("earliest");
    }
    const high = Number(page.watermarks.high);
    if (high - page.next_offset > MOST_NEW) page = await ask(high - MOST_NEW);
    this.end = page.next_offset;
    return page.records;
  }

  /** Read until there is a record ahead, or no more. */
  async fill() {
    while (!this.ahead.length && this.from < this.to) {
      if (this.isBackwards) {
        const from = Math.max(this.from, this.to - this.stretch);
        this.ahead = (await this.#between(from, this.to)).reverse();
        this.to = from;
      } else {
        const to = Math.min(this.to, this.from + this.stretch);
        this.ahead = await this.#between(this.from, to);
        this.from = to;
      }
      this.stretch = Math.min(this.stretch * 2, MOST_STRETCH);
    }
  }
}

/** Whether a record has the text, in any case, in its key, its value or its headers. */
export function hasText(record, text) {
  const parts = [record.key, typeof record.value === "string" ? record.value : inline(record.value ?? null), record.headers ? inline(record.headers) : ""];
  return parts.some((each) => each?.toLowerCase().includes(text.toLowerCase()));
}

/** Open partitions of a topic; resolves to {take, newer}: the next records, and those written meanwhile, newest first. */
export async function openLog(topic, partitions, begin, signal) {
  const cursors = partitions.map((each) => new Cursor(topic, each, signal));
  await inTurns(cursors.map((each) => () => each.open(begin)));
  const isBefore = (one, other) => (begin.kind === "newest" ? one.timestamp > other.timestamp : one.timestamp < other.timestamp);

  /** The next `count` records for which `isWanted` holds, of `looked` at most: {records, looked, isEnd}. */
  async function take(count, isWanted, mostLooked) {
    const records = [];
    let looked = 0;
    for (; records.length < count && looked < mostLooked; looked += 1) {
      await inTurns(cursors.filter((each) => !each.ahead.length && !each.isEmpty).map((each) => () => each.fill()));
      const open = cursors.filter((each) => each.ahead.length);
      if (!open.length) break;
      const next = open.reduce((best, each) => (isBefore(each.ahead[0], best.ahead[0]) ? each : best)).ahead.shift();
      if (isWanted(next)) records.push(next);
    }
    return { records, looked, isEnd: cursors.every((each) => each.isEmpty) };
  }
  async function newer() {
    const found = [];
    await inTurns(cursors.map((each) => async () => found.push(...(await each.newer()).reverse())));
    return found.sort((one, other) => other.timestamp - one.timestamp);
  }
  return { take, newer };
}
