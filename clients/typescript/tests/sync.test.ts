import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, RetryPolicy } from "../src/index.ts";
import type { LiveTopic, SyncChange } from "../src/index.ts";
import { Double, event, events, problem, snapshot } from "./double.ts";

const AT = "0:9,1:9@17";
const BEGIN = { begin: { topic: "t", lanes: 2, at: AT } };
const END = { end: { at: "0:12,1:9@17" } };

function topicOf(double: Double) {
  const retries = new RetryPolicy({ maxBackoffS: 0 });
  return new Client("http://example.org", { fetch: double.fetch, retries }).topic<number>("t");
}

function row(key: unknown, value: number, position: string, more = {}) {
  const [partition, offset] = position.split(":").map(Number);
  const named = { topic: "t", key, key_format: "text", partition, offset, position, timestamp: 1000 };
  return { ...named, value, value_format: "json", watermark: `${partition}:${offset! + 1}`, ...more };
}

const gone = (key: string, watermark = "0:99") => ({ topic: "t", key, key_format: "text", absent: true, watermark });
const lane = (partition: number, more = {}) => ({ lane: { lane: `${partition}.0`, partition, next_offset: 9, as_of_ms: 5000, cursor: `c${partition}`, ...more } });
const change = (name: string, data: unknown) => event(name, "", data).replace(/^id.*\n/, "");
/** A stream that stays open, and gives what is pushed into it. */
function pushed() {
  let push!: (chunk: string) => void;
  const body = new ReadableStream({ start: (it) => void (push = (chunk) => it.enqueue(new TextEncoder().encode(chunk))) });
  const answer = (_: unknown, signal: AbortSignal) => {
    const ended = new ReadableStream({
      async start(it) {
        signal.addEventListener("abort", () => it.error(signal.reason));
        for await (const chunk of body) it.enqueue(chunk);
      },
    });
    return new Response(ended, { headers: { "Content-Type": "text/event-stream" } });
  };
  return { answer, push };
}

const valuesOf = (live: LiveTopic<number>) => Object.fromEntries([...live].map((each) => [String(each.key), each.value]));

/** Wait until a subscriber has heard of so many changes. */
async function heard(changes: readonly unknown[], count: number) {
  for (let turn = 0; changes.length < count && turn < 500; turn++) await new Promise((resolve) => setTimeout(resolve, 2));
  assert.equal(changes.length, count);
}

test("the whole topic is there at once, then its changes; the last line of a key counts", async () => {
  const stream = pushed();
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:1"), row("a", 2, "0:2"), row("b", 1, "0:3"), gone("b"), lane(0), row("c", 3, "1:1"), lane(1), END),
    stream.answer,
  );
  const live = topicOf(double).sync({ prefix: "x", conditions: { n: 1 } });
  assert.equal(live.size, 0);
  await live.ready;
  assert.deepEqual(valuesOf(live), { a: 2, c: 3 });
  const changes: SyncChange<number>[] = [];
  live.subscribe((each) => changes.push(each));
  stream.push(change("record", row("a", 2, "0:2")) + change("record", row("a", 3, "0:10")) + change("absent", gone("c", "1:5")));
  stream.push(change("record", row("d", 4, "1:10")) + change("left", row("d", 5, "1:11")) + "id: 0:11,1:12@17\n\n");
  await heard(changes, 4);
  assert.deepEqual(changes.map((each) => [each.key, each.absent ? "gone" : each.value]), [["a", 3], ["c", "gone"], ["d", 4], ["d", "gone"]]);
  assert.deepEqual(valuesOf(live), { a: 3 });
  assert.equal(double.headersNamed("Last-Event-ID")[1], "0:12,1:9@17");
  assert.equal(double.asked[0]!.url.href, "http://example.org/topics/t/snapshot?.n=1&prefix=x");
  live.close();
  await live.closed;
  assert.equal(live.get("a")!.value, 3);
});

test("a snapshot that is cut off goes on behind its last lane, and the stream where the first answer began", async () => {
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:1"), lane(0), row("c", 9, "1:1"), row("d", 9, "1:2")),
    problem(503, "state-unavailable"),
    snapshot({ begin: { ...BEGIN.begin, at: "0:50,1:50@17" } }, row("c", 3, "1:3"), lane(1), { end: {} }),
    events([], true),
  );
  const live = topicOf(double).sync();
  await live.ready;
  assert.deepEqual(valuesOf(live), { a: 1, c: 3 });
  while (double.asked.length < 4) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(double.asked.map(({ url }) => url.searchParams.get("cursor")), [null, "c0", "c0", null]);
  assert.equal(double.headersNamed("Last-Event-ID")[3], AT);
  live.close();
});

test("a problem behind the first byte is resumed, or begins again, or is the error", async () => {
  const ended = (status: number, type: string) => ({ problem: { type: `urn:keylane:problem:${type}`, title: "t", status, detail: "d" } });
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:1"), lane(0), ended(503, "state-unavailable")),
    snapshot(BEGIN, row("b", 1, "1:1"), ended(401, "unauthorized")),
    snapshot(BEGIN, row("b", 1, "1:1"), ended(409, "snapshot-outdated")),
    snapshot(BEGIN, lane(0), row("c", 1, "1:1"), lane(1), END),
    events([], true),
  );
  const live = topicOf(double).sync();
  await live.ready;
  assert.deepEqual(valuesOf(live), { c: 1 });
  assert.deepEqual(double.asked.slice(0, 4).map(({ url }) => url.searchParams.get("cursor")), [null, "c0", "c0", null]);
  live.close();

  const failed = topicOf(new Double(snapshot(BEGIN, ended(500, "corrupt-state")))).sync();
  await assert.rejects(failed.ready, { name: "ServiceFailed", type: "corrupt-state" });
  await assert.rejects(failed.closed, { type: "corrupt-state" });
});

test("a snapshot that is cut off as often as there are attempts, without a lane, is an error", async () => {
  const double = new Double(...Array.from({ length: 4 }, () => snapshot(BEGIN, row("a", 1, "0:1"))));
  await assert.rejects(topicOf(double).sync().ready, { name: "Unreachable", message: /cut off/ });
  assert.equal(double.asked.length, 4);
});

test("after a gap another snapshot is read beside the stream, and a change that came meanwhile is kept", async () => {
  const stream = pushed();
  const second = Promise.withResolvers<void>();
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:1"), row("b", 1, "0:2"), lane(0), lane(1), END),
    stream.answer,
    async (asked, signal) => {
      await second.promise;
      const answer = snapshot(BEGIN, row("a", 2, "0:20"), row("c", 1, "0:21"), row("d", 1, "0:22"), lane(0), lane(1), END);
      return (answer as (...given: unknown[]) => Response)(asked, signal);
    },
  );
  const live = topicOf(double).sync();
  await live.ready;
  const changes: SyncChange<number>[] = [];
  live.subscribe((each) => changes.push(each));
  stream.push(change("gap", { partition: 0, from: 3, to: 15 }) + change("record", row("a", 1, "0:19")) + change("record", row("c", 2, "0:25")));
  stream.push(change("absent", gone("d", "0:30")));
  await heard(changes, 2);
  second.resolve();
  await heard(changes, 4);
  assert.deepEqual(valuesOf(live), { a: 2, c: 2 });
  assert.deepEqual(changes.slice(2).map((each) => [each.key, each.absent]), [["b", true], ["a", false]]);
  live.close();
});

test("of a topic that was built again all records are changes: other values have the same positions", async () => {
  const stream = pushed();
  const again = { end: { at: "0:12,1:9@18" } };
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:1"), lane(0), lane(1), END),
    stream.answer,
    snapshot(BEGIN, row("a", 2, "0:1"), lane(0), lane(1), again),
  );
  const live = topicOf(double).sync();
  await live.ready;
  const changes: SyncChange<number>[] = [];
  live.subscribe((each) => changes.push(each));
  stream.push(change("gap", { partition: 0, from: 12, to: 0 }));
  await heard(changes, 1);
  assert.deepEqual(changes.map((each) => [each.key, each.absent ? "gone" : each.value]), [["a", 2]]);
  live.close();
});

test("a gap while a snapshot is read needs another one, which begins behind it", async () => {
  const stream = pushed();
  const second = Promise.withResolvers<void>();
  const double = new Double(
    snapshot(BEGIN, row("a", 1, "0:90"), lane(0), lane(1), END),
    stream.answer,
    async (asked, signal) => {
      await second.promise;
      const answer = snapshot(BEGIN, row("a", 2, "0:95"), lane(0), lane(1), END) as (...given: unknown[]) => Response;
      return answer(asked, signal);
    },
    snapshot(BEGIN, row("a", 3, "0:1"), lane(0), lane(1), END),
  );
  const live = topicOf(double).sync();
  await live.ready;
  const changes: SyncChange<number>[] = [];
  live.subscribe((each) => changes.push(each));
  stream.push(change("gap", { partition: 0, from: 91, to: 92 }) + change("record", row("b", 9, "0:99")));
  await heard(changes, 1);
  stream.push(change("gap", { partition: 0, from: 100, to: 0 }) + change("record", row("c", 1, "0:2")));
  await heard(changes, 2);
  second.resolve();
  await heard(changes, 4);
  assert.deepEqual(valuesOf(live), { a: 3, c: 1 });
  assert.deepEqual(changes.map((each) => [each.key, each.absent ? "gone" : each.value]), [["b", 9], ["c", 1], ["b", "gone"], ["a", 3]]);
  live.close();
});

test("records expire: those that had when the snapshot was read, and the others once their time has come", async () => {
  const begin = { begin: { ...BEGIN.begin, ttl_ms: 60_000 } };
  const now = Date.now();
  const read = lane(0, { as_of_ms: now });
  const rows = [row("old", 1, "0:1", { timestamp: now - 61_000 }), row("soon", 1, "0:2", { timestamp: now - 59_900 }), row("new", 1, "0:3", { timestamp: now })];
  const live = topicOf(new Double(snapshot(begin, ...rows, read, lane(1), END), events([], true))).sync();
  await live.ready;
  assert.equal(live.has("old"), false);
  for (let turn = 0; live.has("soon") && turn < 500; turn++) await new Promise((resolve) => setTimeout(resolve, 2));
  assert.deepEqual(valuesOf(live), { new: 1 });
  assert.equal(live.size, 1);
  live.close();
});

test("the reason of its signal is what ends it", async () => {
  const ending = new AbortController();
  const live = topicOf(new Double(snapshot(BEGIN, lane(0), lane(1), END), events([], true))).sync({ signal: ending.signal });
  await live.ready;
  const reason = new Error("enough");
  ending.abort(reason);
  await assert.rejects(live.closed, reason);
});

test("keys of texts, bytes and JSON are different keys", async () => {
  const rows = [row("7", 1, "0:1"), row(7, 2, "0:2", { key_format: "json" }), row("Nw==", 3, "0:3", { key_format: "base64" })];
  const live = topicOf(new Double(snapshot(BEGIN, ...rows, lane(0), lane(1), END), events([], true))).sync();
  await live.ready;
  assert.deepEqual([live.get("7"), live.get(7), live.get(new Uint8Array([55]))].map((each) => each?.value), [1, 2, 3]);
  live.close();
});
