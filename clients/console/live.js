/**
 * The changes of one key. `keylane serve` streams them: each event is followed by a read. EventSource can send no
 * token, so the stream is read by hand. Where there is none: long polls. The service holds a read with If-None-Match
 * until another record arrives. An absent key has no tag to wait with, so the read waits for its lane's next record.
 */

import { sleep, untilWanted } from "./polling.js";
import { ask, Failed, keyPath, send, settings, urlOf } from "./session.js";

const WAIT_S = 20;
const BUSY_LANE_MS = 250;
const AFTER_FAILURE_MS = 3000;
const STREAM_AGAIN_MS = 1000;
const NOT_REACHED = 412;
/** Addresses of APIs without streams: one answer says so for all keys. */
const streamless = new Set();

/** The headers to wait with, by the answer before. */
function waiting(last) {
  if (!last) return {};
  const prefer = { Prefer: `wait=${WAIT_S}` };
  const tag = last.status === 200 && last.headers.get("ETag");
  if (tag) return { ...prefer, "If-None-Match": tag };
  const watermark = last.headers.get("Keylane-Watermark");
  return watermark ? { ...prefer, "Keylane-Min-Position": watermark } : {};
}

async function next(topic, key, format, last, signal) {
  return send("GET", keyPath(topic, key), { query: formatQuery(format), headers: waiting(last), signal });
}

const formatQuery = (format) => (format === "base64" ? { key_format: "base64" } : {});

/** Open the stream; resolves to its reader, or to null where the service has none. */
async function openStream({ topic, key, format }, signal) {
  const options = { headers: { Accept: "text/event-stream" }, signal };
  const response = await ask(urlOf(keyPath(topic, key, "changes"), formatQuery(format)), options);
  const isStream = response.ok && response.headers.get("Content-Type")?.startsWith("text/event-stream");
  if (!isStream) await response.body?.cancel();
  return isStream ? response.body.getReader() : null;
}

/** A connection that breaks is a TypeError; the next read says so, if it still does. */
function ifBroken(value) {
  return (error) => {
    if (error instanceof TypeError) return value;
    throw error;
  };
}

/** Call `onChange` after each event about the key. False: nothing is streamed here. */
async function followStream(wanted, signal, onChange) {
  const reader = await openStream(wanted, signal).catch(ifBroken(undefined));
  if (!reader) return reader === undefined;
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read().catch(ifBroken({ done: true }));
    if (done) return true;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    if (events.some((each) => /^event: (record|absent)$/m.test(each))) await onChange();
  }
}

/** Whether an answer is of another state of the key than the one before. */
function isNew(answer, last) {
  return !last || last.status !== answer.status || last.headers.get("ETag") !== answer.headers.get("ETag");
}

/** Call `onAnswer` with the answer of each state of the key (200, 404), `onTrouble` with failures, until `signal`. */
export async function follow({ topic, key, format }, signal, onAnswer, onTrouble) {
  let last = null;
  const base = settings().base;
  let isStreamed = !streamless.has(base);
  const readNow = async () => {
    await untilWanted(signal);
    const answer = await next(topic, key, format, null, signal);
    if (answer.status !== 200 && !answer.headers.get("Keylane-Watermark")) return;
    const before = last;
    last = answer;
    if (isNew(answer, before)) await onAnswer(answer);
  };
  while (!signal.aborted) {
    try {
      await untilWanted(signal);
      if (isStreamed) {
        isStreamed = await followStream({ topic, key, format }, signal, readNow);
        if (!isStreamed) streamless.add(base);
        else {
          await sleep(STREAM_AGAIN_MS, signal);
          await readNow();
        }
        continue;
      }
      const answer = await next(topic, key, format, last, signal);
      if (answer.status === 200 || answer.status === 404) {
        if (isNew(answer, last)) await onAnswer(answer);
        // The problem document has no tag: an answer that is not about the key must not be waited with.
        const isLive = answer.status === 200 || answer.headers.get("Keylane-Watermark");
        last = answer;
        if (!isLive || answer.status === 404) await sleep(isLive ? BUSY_LANE_MS : AFTER_FAILURE_MS, signal);
      } else if (answer.status !== 304 && !(answer.status === NOT_REACHED && last?.status === 404)) {
        await onTrouble(answer);
        await sleep(AFTER_FAILURE_MS, signal);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Failed)) throw error;
      await onTrouble(null, error);
      await sleep(AFTER_FAILURE_MS, signal).catch(() => {});
    }
  }
}
