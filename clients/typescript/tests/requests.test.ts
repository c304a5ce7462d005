import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiKey, Bearer, Client, InvalidAnswer, InvalidArgument, KeyAbsent, NO_RETRIES, RateLimited, RetryPolicy, Unavailable, Unreachable } from "../src/index.ts";
import { Double, document, problem, record } from "./double.ts";

const URL_OF_API = "https://example.org/prod/";
const AT_ONCE = new RetryPolicy({ maxBackoffS: 0 });
const WRITTEN = { partition: 2, offset: 7, position: "2:7" };

function clientOf(double: Double, options = {}) {
  return new Client(URL_OF_API, { fetch: double.fetch, retries: AT_ONCE, ...options });
}

test("a read is sent again after an answer that says so, and after a connection that broke", async () => {
  const double = new Double(problem(503, "state-unavailable"), new TypeError("broken"), problem(429, "rate-limited"), record(1, "2:7"));
  assert.equal((await clientOf(double).topic("t").read("k")).value, 1);
  assert.equal(double.asked.length, 4);
  assert.equal(double.asked[0]!.url.href, "https://example.org/prod/topics/t/keys/k");
});

test("a read that fails as often as there are attempts is the last one's error", async () => {
  const double = new Double(...Array.from({ length: 4 }, () => problem(503, "state-unavailable")));
  await assert.rejects(clientOf(double).topic("t").read("k"), Unavailable);
  assert.equal(double.asked.length, 4);
});

test("without retries each request is sent once", async () => {
  const double = new Double(problem(503, "state-unavailable"));
  await assert.rejects(clientOf(double, { retries: NO_RETRIES }).topic("t").read("k"), Unavailable);
});

test("a write without an idempotency key is sent once, with one until it is answered", async () => {
  const once = new Double(problem(503, "kafka-unavailable"));
  await assert.rejects(clientOf(once).topic("t").put("k", 1), Unavailable);

  const given = new Double(problem(503, "kafka-unavailable"), document(WRITTEN));
  const written = await clientOf(given).topic("t").put("k", 1, { idempotencyKey: "a" });
  assert.equal(String(written.position), "2:7");
  assert.deepEqual(given.headersNamed("Idempotency-Key"), ["a", "a"]);

  const own = new Double(new TypeError("broken"), document(WRITTEN));
  await clientOf(own, { idempotentWrites: true }).topic("t").delete("k");
  const [first, second] = own.headersNamed("Idempotency-Key");
  assert.match(first!, /^[0-9a-f]{32}$/);
  assert.equal(first, second);
});

test("a write that may have happened is not sent again", async () => {
  const double = new Double(problem(504, "unacknowledged", { uncertain: true }));
  const error: unknown = await clientOf(double).topic("t").put("k", 1, { idempotencyKey: "a" }).catch((each) => each);
  assert.ok(error instanceof Unavailable);
  assert.equal(error.isUncertain, true);
});

test("the service says how long to wait, and where that is too long it is an error at once", async () => {
  const begun = Date.now();
  const soon = new Double(problem(429, "rate-limited", {}, { "Retry-After": "1" }), record(1, "2:7"));
  await clientOf(soon).topic("t").read("k");
  assert.ok(Date.now() - begun >= 990);

  const late = new Double(problem(429, "rate-limited", {}, { "Retry-After": "31" }));
  const error: unknown = await clientOf(late).topic("t").read("k").catch((each) => each);
  assert.ok(error instanceof RateLimited);
  assert.equal(error.retryAfterS, 31);
});

test("an answer that does not come in time is Unreachable, its body included", async () => {
  const never = (_: unknown, signal: AbortSignal) =>
    new Promise<Response>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const stuck = (_: unknown, signal: AbortSignal) => {
    const body = new ReadableStream({ start: (it) => signal.addEventListener("abort", () => it.error(signal.reason)) });
    return new Response(body);
  };
  for (const answer of [never, stuck]) {
    const client = clientOf(new Double(answer), { retries: NO_RETRIES, timeoutS: 0.05 });
    await assert.rejects(client.topic("t").read("k"), { name: "Unreachable", message: /did not answer within 0.05 s/ });
  }
});

test("what is not Keylane's answer says so", async () => {
  const answers = [
    new Response("<html>", { status: 500 }),
    new Response("<html>"),
    new Response("", { status: 302 }),
    new Response(null, { status: 302, headers: { Location: "https://example.org/" } }),
    new Response("[]", { status: 404 }),
    document({ records: {} }),
    document({ records: [{ key: "k" }], watermarks: {} }),
  ];
  for (const answer of answers) {
    const scanned = clientOf(new Double(answer), { retries: NO_RETRIES }).topic("t").scan().next();
    const error: unknown = await scanned.catch((each) => each);
    assert.ok(error instanceof InvalidAnswer || (error as Error).name === "RequestRefused", String(error));
  }
  await assert.rejects(clientOf(new Double(document({}))).topic("t").read("k"), InvalidAnswer);
});

test("a page of a proxy that does not reach the service is asked for again", async () => {
  const pages = [502, 503, 504, 522].map((status) => new Response("<html>", { status }));
  const limited = new Response("<html>", { status: 429, headers: { "Retry-After": "0" } });
  for (const page of [...pages, limited, new Response(null, { status: 502 })]) {
    const double = new Double(page, record(1, "2:7"));
    assert.equal((await clientOf(double).topic("t").read("k")).value, 1);
  }
  const away = clientOf(new Double(new Response("<html>", { status: 503 })), { retries: NO_RETRIES });
  await assert.rejects(away.topic("t").put("k", 1), { name: "Unreachable", message: /a proxy answers with status 503/ });
});

test("a redirect is not followed, and says where to", async () => {
  const moved = new Response(null, { status: 308, headers: { Location: "https://example.org/api" } });
  const error: unknown = await clientOf(new Double(moved)).topic("t").read("k").catch((each) => each);
  assert.ok(error instanceof InvalidAnswer);
  assert.match(error.message, /redirected to "https:\/\/example.org\/api"/);
});

test("a tag that a proxy has changed is the service's again", async () => {
  for (const changed of ['W/"2-7@17"', '"2-7@17-gzip"', '"2-7@17;br"']) {
    const double = new Double(record(1, "2:7", { ETag: changed }), record(1, "2:7"));
    const topic = clientOf(double).topic("t");
    await topic.get("k", { ifMatch: await topic.read("k") });
    assert.deepEqual(double.headersNamed("If-Match"), [null, '"2-7@17"']);
  }
});

test("a problem whose type is the name of a property of all objects is an error by its status", async () => {
  await assert.rejects(clientOf(new Double(problem(404, "constructor"))).topic("t").read("k"), { name: "NotFound" });
});

test("credentials are asked for before each attempt, and a header that cannot be sent is refused", async () => {
  let turn = 0;
  const double = new Double(problem(503, "state-unavailable"), record(1, "2:7"));
  await clientOf(double, { auth: new Bearer(async () => `t${++turn}`) }).topic("t").read("k");
  assert.deepEqual(double.headersNamed("Authorization"), ["Bearer t1", "Bearer t2"]);

  const keyed = new Double(record(1, "2:7"));
  await clientOf(keyed, { auth: new ApiKey("secret") }).topic("t").read("k");
  assert.deepEqual(keyed.headersNamed("x-api-key"), ["secret"]);
  await assert.rejects(clientOf(new Double(), { auth: new ApiKey("a\nb") }).topic("t").read("k"), InvalidArgument);
});

test("half of a surrogate pair is no key and no value", async () => {
  const topic = clientOf(new Double()).topic("t");
  await assert.rejects(topic.read("\ud800"), InvalidArgument);
  await assert.rejects(topic.put("k", "\udc00"), InvalidArgument);
  await assert.rejects(topic.read("\ufffd\ud800"), InvalidArgument);
  await assert.rejects(topic.find({ name: "\ud800" }).count(), InvalidArgument);
  const double = new Double(record(1, "2:7"));
  await clientOf(double).topic("t").read("\ufffd");
  assert.match(double.asked[0]!.url.pathname, /keys\/%EF%BF%BD/);
});

test("what is not the URL of an API is refused, and one with a path is kept", () => {
  for (const url of ["", "localhost:8080", "ftp://a", "http://a/?b", "http://a/#b", "http://user:pw@a"]) {
    assert.throws(() => new Client(url), InvalidArgument, url);
  }
});

test("JSON can be parsed by another parser, of values alone and in documents", async () => {
  const loads = (text: string) => JSON.parse(text, (_, each, ...[context]) => {
    const source = (context as { source?: string } | undefined)?.source;
    return typeof each === "number" && source && !Number.isSafeInteger(each) ? BigInt(source) : each;
  });
  const digits = "12345678901234567890";
  const headers = { "Content-Type": "application/json", "Keylane-Position": "2:7" };
  const double = new Double(new Response(`{"n": ${digits}}`, { headers }));
  const found = await clientOf(double, { loads }).topic<{ n: bigint }>("t").read("k");
  assert.equal(found.value.n, BigInt(digits));
});

test("a session's read of several keys waits for what its answer lacks, and asks again", async () => {
  const row = (n: number) => ({ key: "k", key_format: "text", partition: 2, offset: n, timestamp: 1, value: n, value_format: "json" });
  const double = new Double(
    document(WRITTEN),
    document({ records: [row(6)], watermarks: { 2: 7 }, age_ms: 1 }),
    new Response(null, { status: 404 }),
    document({ records: [row(7)], watermarks: { 2: 8 }, age_ms: 1 }),
  );
  const topic = clientOf(double).session().topic("t");
  await topic.put("k", 7);
  const found = await topic.getMany(["k"]);
  assert.equal(found.get("k")!.value, 7);
  assert.deepEqual(double.asked.map(({ method }) => method), ["PUT", "POST", "HEAD", "POST"]);
  assert.deepEqual(double.headersNamed("Keylane-Min-Position"), [null, null, "2:7", null]);
  assert.deepEqual(double.headersNamed("Prefer"), [null, null, "wait=20", null]);
});

test("a session whose answers go on lacking its write says so", async () => {
  const lacking = () => document({ count: 1, watermarks: { 2: 7 } });
  const waited = () => new Response(null, { status: 404 });
  const double = new Double(document(WRITTEN), ...Array.from({ length: 5 }, () => [lacking(), waited()]).flat(), lacking());
  const topic = clientOf(double).session().topic("t");
  await topic.put("k", 7);
  await assert.rejects(topic.count(), { name: "PositionNotReached", message: /2:7.*in 6 answers/ });
});

test("a connection that cannot be made is Unreachable with its reason", async () => {
  await assert.rejects(new Client("http://127.0.0.1:9", { retries: NO_RETRIES }).topic("t").read("k"), Unreachable);
});

test("a key that is absent is undefined for get, and an error for read", async () => {
  const double = new Double(problem(404, "key-absent"), problem(404, "key-absent"));
  assert.equal(await clientOf(double).topic("t").get("k"), undefined);
  await assert.rejects(clientOf(double).topic("t").read("k"), KeyAbsent);
});
