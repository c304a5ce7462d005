import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { AccessDenied, Bearer, Client, RetryPolicy, Unreachable } from "../src/index.ts";
import type { Change } from "../src/index.ts";
import { Double, event, events, problem, record, recordEvent } from "./double.ts";

function topicOf(double: Double, options = {}) {
  const retries = new RetryPolicy({ maxBackoffS: 0 });
  return new Client("http://example.org", { fetch: double.fetch, retries, ...options }).topic("t");
}

async function take<T>(items: AsyncIterable<T>, most: number): Promise<T[]> {
  const taken: T[] = [];
  for await (const item of items) {
    taken.push(item);
    if (taken.length === most) break;
  }
  return taken;
}

const positions = (records: readonly unknown[]) => records.map((each) => String((each as { position: unknown }).position));

test("a watch reads the key, then its stream, and resumes it from the last event on", async () => {
  const double = new Double(
    record(1, "2:1"),
    events([recordEvent(2, "2:2")]),
    events([recordEvent(2, "2:2"), recordEvent(3, "2:3")], true),
  );
  const topic = topicOf(double, { auth: new Bearer("secret") });
  assert.deepEqual(positions(await take(topic.watch("k"), 3)), ["2:1", "2:2", "2:3"]);
  assert.deepEqual(double.headersNamed("Last-Event-ID"), [null, "2:1@17", "2:2@17"]);
  assert.deepEqual(double.headersNamed("Authorization"), Array(3).fill("Bearer secret"));
  assert.equal(double.asked[1]!.url.pathname, "/topics/t/keys/k/changes");
});

test("events that are cut anywhere, even within a character, are read as if they were not", async () => {
  const bytes = new TextEncoder().encode(`retry: 1000\r\n\r\n: comment\n\n${recordEvent("🚆", "2:2")}${recordEvent("ü", "2:3")}`);
  for (const size of [1, 2, 3, 7]) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) => bytes.slice(index * size, (index + 1) * size));
    const double = new Double(record("a", "2:1"), events(chunks, true));
    const found = await take(topicOf(double).watch("k"), 3);
    assert.deepEqual(found.map((each) => !each.absent && each.value), ["a", "🚆", "ü"]);
  }
});

test("where nothing is streamed, a present record is polled by its tag and an absent key by its lane", async () => {
  const double = new Double(
    record(1, "2:1"),
    problem(501, "not-streamed"),
    new Response(null, { status: 304 }),
    problem(404, "key-absent", {}, { "Keylane-Watermark": "2:5" }),
    problem(412, "position-not-reached"),
    record(2, "2:6"),
  );
  const found = await take(topicOf(double).watch("k", { waitS: 3 }), 3);
  assert.deepEqual(found.map(({ absent }) => absent), [false, true, false]);
  assert.deepEqual(double.headersNamed("If-None-Match"), [null, null, '"2-1@17"', '"2-1@17"', null, null]);
  assert.deepEqual(double.headersNamed("Keylane-Min-Position"), [null, null, null, null, "2:5", "2:5"]);
  assert.deepEqual(double.headersNamed("Prefer"), [null, null, "wait=3", "wait=3", "wait=3", "wait=3"]);
});

test("a stream that breaks as often as there are attempts, without an event, is an error", async () => {
  const broken = () => new TypeError("broken");
  const double = new Double(record(1, "2:1"), broken(), events([recordEvent(2, "2:2")]), broken(), broken(), broken(), broken());
  const watch = topicOf(double).watch("k");
  await take({ [Symbol.asyncIterator]: () => ({ next: () => watch.next() }) }, 2);
  await assert.rejects(watch.next(), Unreachable);
  assert.equal(double.asked.length, 7);
});

test("a stream that lasts and is cut is no failure, however often, though the key does not change", async () => {
  const cut = () => (_: unknown, signal: AbortSignal) => {
    const chunks = ["retry: 1000\n\n", ":\n\n"];
    const body = new ReadableStream({
      pull: (it) => (chunks.length ? it.enqueue(new TextEncoder().encode(chunks.shift())) : it.error(new TypeError("terminated"))),
      start: (it) => signal.addEventListener("abort", () => it.error(signal.reason)),
    });
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
  };
  const double = new Double(record(1, "2:1"), cut(), cut(), cut(), cut(), cut(), events([recordEvent(2, "2:2")], true));
  assert.deepEqual(positions(await take(topicOf(double).watch("k"), 2)), ["2:1", "2:2"]);
});

test("a poll that is answered at once with what is known is not sent again at once", async () => {
  const cached = () => record(1, "2:1");
  const double = new Double(cached(), problem(501, "not-streamed"), cached(), cached(), record(2, "2:2"));
  const beganMs = Date.now();
  assert.deepEqual(positions(await take(topicOf(double).watch("k"), 2)), ["2:1", "2:2"]);
  assert.ok(Date.now() - beganMs >= 450);
});

test("changes of a topic come by name, and resume behind the last poll that was read", async () => {
  const data = { topic: "t", key: "k", key_format: "text", absent: true, watermark: "0:4" };
  const double = new Double(
    events([
      "id: 0:1,1:1@17\n\n",
      recordEvent(1, "0:1").replace(/^id.*\n/, ""),
      event("absent", "", data).replace(/^id.*\n/, ""),
      "id: 0:5,1:1@17\n\n",
      `event: problem\ndata: {}\n\n`,
      `event: left\ndata: ${JSON.stringify({ ...data, absent: false, partition: 1, offset: 1, value: 1, value_format: "json", timestamp: 1 })}\n\n`,
      event("left", "", data).replace(/^id.*\n/, ""), // as a caller with rules is sent it
      `event: gap\ndata: {"partition": 1, "from": 1, "to": 9}\n\n`,
    ]),
    events([], true),
  );
  const ending = new AbortController();
  const changes = topicOf(double).changes({ prefix: "k", conditions: { a: 1 }, lastEventId: "0:0,1:0@17", signal: ending.signal });
  const seen: Change[] = [];
  const reason = new Error("enough");
  await assert.rejects(async () => {
    for await (const change of changes) {
      seen.push(change);
      if (change.kind === "gap") setImmediate(() => ending.abort(reason));
    }
  }, reason);
  assert.deepEqual(seen.map(({ kind }) => kind), ["record", "absent", "left", "absent", "gap"]);
  assert.equal(changes.lastEventId, "0:5,1:1@17");
  assert.deepEqual(double.headersNamed("Last-Event-ID").slice(0, 1), ["0:0,1:0@17"]);
  assert.equal(double.asked[0]!.url.search, "?.a=1&prefix=k");
});

test("a topic's stream that the service refuses is its error", async () => {
  const double = new Double(problem(403, "outside-scope"));
  await assert.rejects(take(topicOf(double).changes(), 1), AccessDenied);
});

test("a stream from which no byte comes for 45 seconds is opened again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const silent = events([": comment\n\n"], true);
    const double = new Double(record(1, "2:1"), silent, events([recordEvent(2, "2:2")], true));
    const found = take(topicOf(double).watch("k"), 2);
    const until = async (requests: number) => {
      for (let turn = 0; double.asked.length < requests && turn < 1000; turn++) {
        await new Promise((resolve) => setImmediate(resolve));
        mock.timers.tick(turn < 50 ? 0 : 1000);
      }
    };
    await until(3);
    assert.deepEqual(positions(await found), ["2:1", "2:2"]);
  } finally {
    mock.timers.reset();
  }
});

test("a break out of a loop ends the connection", async () => {
  let isEnded = false;
  const stream = events([recordEvent(2, "2:2")], true) as (asked: unknown, signal: AbortSignal) => Response;
  const double = new Double(record(1, "2:1"), (asked, signal) => {
    signal.addEventListener("abort", () => (isEnded = true));
    return stream(asked, signal);
  });
  await take(topicOf(double).watch("k"), 2);
  assert.ok(isEnded);
});
