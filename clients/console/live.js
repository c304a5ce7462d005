/**
 * The changes of one key. Today by long polls: the service holds a read with If-None-Match until another record
 * arrives. An absent key has no tag to wait with, so the read waits for the next record of the key's lane.
 * Server-Sent Events would replace `next` and nothing else.
 */

import { sleep, untilWanted } from "./polling.js";
import { Failed, keyPath, send } from "./session.js";

const WAIT_S = 20;
const BUSY_LANE_MS = 250;
const AFTER_FAILURE_MS = 3000;
const NOT_REACHED = 412;

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
  const query = format === "base64" ? { key_format: "base64" } : {};
  return send("GET", keyPath(topic, key), { query, headers: waiting(last), signal });
}

/** Call `onAnswer` with the answer of each state of the key (200, 404), `onTrouble` with failures, until `signal`. */
export async function follow({ topic, key, format }, signal, onAnswer, onTrouble) {
  let last = null;
  while (!signal.aborted) {
    try {
      await untilWanted(signal);
      const answer = await next(topic, key, format, last, signal);
      if (answer.status === 200 || answer.status === 404) {
        const isNew = !last || last.status !== answer.status || last.headers.get("ETag") !== answer.headers.get("ETag");
        if (isNew) await onAnswer(answer);
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
