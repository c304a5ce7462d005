/**
 * What arrives: the changes of a key, and those of a topic.
 *
 * Changes come by Server-Sent Events where the service streams them. A key's are else polled: what refuses the stream
 * (a function answers 501, an older service 404) is asked with `If-None-Match`, which the service answers once another
 * record has arrived. For an absent key it has nothing to wait for. So the client waits for the next position of the
 * key's lane: whatever arrives there may be the key. A session reads its own write first, and the stream resumes there.
 */

import type { Absent, Change, Gap, TopicRecord } from "./answers.ts";
import type { Conditions } from "./conditions.ts";
import { conditionsQuery } from "./conditions.ts";
import { EventParser } from "./events.ts";
import type { ServerEvent } from "./events.ts";
import type { Row } from "./parsing.ts";
import { expectKeylane, parseAbsence, parseAbsent, parseBareRecord, parseDocument, parseRecord } from "./parsing.ts";
import { KeyAbsent, PositionNotReached } from "./problems.ts";
import { NOT_MODIFIED, SESSION_WAIT_S, ownWrite, positionHeaders } from "./reads.ts";
import type { TopicScope } from "./scope.ts";
import { termsQuery } from "./scope.ts";
import type { ApiRequest } from "./transport.ts";
import { pause } from "./transport.ts";
import type { Key } from "./wire.ts";
import { keyBounds, keyPath, segment } from "./wire.ts";

type Found<V> = TopicRecord<V> | Absent;

const EVENT_STREAM = "text/event-stream";
/** Between reads of an absent key: its lane may have many records of others. */
const BUSY_LANE_S = 0.25;
const FIRST_PAUSE_S = 0.1;
/** A server sends a comment every 15 s: one that is silent for that long is gone. */
const SILENCE_S = 45;

export interface StreamOptions {
  /** Ends the stream: its reason is what the iterator throws. A `break` out of the loop ends it as well. */
  readonly signal?: AbortSignal;
}

export interface ChangesOptions extends StreamOptions {
  /** Changes of keys that begin with this. */
  readonly prefix?: Key;
  /** Of records that meet these conditions on the topic's fields, and `left` for those that do not. */
  readonly conditions?: Conditions;
  /** `lastEventId` of an earlier stream: changes from there on. */
  readonly lastEventId?: string;
}

/** Read a key's record, then each change as it arrives, without end. */
export async function* watchKey<V>(
  topic: TopicScope,
  key: Key,
  { waitS, signal }: StreamOptions & { readonly waitS: number },
): AsyncGenerator<Found<V>, void> {
  const [path, query] = keyPath(topic.name, key);
  const request: ApiRequest = { method: "GET", path, query: { ...query, ...termsQuery(topic) }, signal };
  let last: Found<V> | undefined;
  let hasFollowed = topic.terms.maxAgeMs !== undefined;
  for (;;) {
    const found: Found<V> | undefined = await poll(topic, key, request, last, waitS);
    const isIdle = found !== undefined && isSame(found, last);
    if (found) {
      if (!isIdle) yield found;
      last = found;
    }
    // The poll did not wait: a proxy may have answered it.
    if (isIdle && !found.absent) await pause(BUSY_LANE_S, signal);
    if (!last || hasFollowed) continue;
    hasFollowed = true;
    for await (const change of followKey<V>(topic, request, last)) {
      if (!isSame(change, last)) yield change;
      last = change;
    }
  }
}

/** Read the key once it may have changed. Undefined: it has not. */
async function poll<V>(
  topic: TopicScope,
  key: Key,
  request: ApiRequest,
  last: Found<V> | undefined,
  waitS: number,
): Promise<Found<V> | undefined> {
  const { transport, loads } = topic.context;
  let headers: { [name: string]: string } = {};
  if (!last) {
    const written = ownWrite(topic, key);
    if (written) headers = positionHeaders(written, SESSION_WAIT_S);
  } else if (!last.absent) {
    headers = { ...positionHeaders(undefined, waitS), "If-None-Match": last.etag };
  } else {
    if (last.watermark) headers = positionHeaders(last.watermark, waitS);
    await pause(last.watermark ? BUSY_LANE_S : 1, request.signal);
  }
  try {
    const alsoAnswers = "If-None-Match" in headers ? [NOT_MODIFIED] : [];
    const response = await transport.send({ ...request, headers, alsoAnswers });
    return response.status === NOT_MODIFIED ? undefined : parseBareRecord<V>(response, topic.name, key, loads);
  } catch (error) {
    if (error instanceof KeyAbsent) return parseAbsent(error.headers, topic.name, key);
    if (error instanceof PositionNotReached && last?.absent) return undefined;
    throw error;
  }
}

/** Give what the service streams of a key. Ends once the service refuses to stream: polls then say what is wrong. */
async function* followKey<V>(topic: TopicScope, request: ApiRequest, last: Found<V>): AsyncGenerator<Found<V>, void> {
  const id = last.absent ? "" : `${last.position}${incarnation(last)}`;
  const stream = followStream(topic, { ...request, path: `${request.path}/changes` }, id);
  try {
    for await (const event of stream) {
      if (event.name !== "record" && event.name !== "absent") continue;
      yield expectKeylane(() => {
        const document = parseDocument<Row>(event.data, topic.context.loads);
        return parseRecord<V>(document, topic.name, tagOf(event)) ?? parseAbsence(document, topic.name);
      });
    }
  } catch (error) {
    request.signal?.throwIfAborted();
    if (topic.context.transport.retries.isTransient(error)) throw error;
  }
}

/**
 * Give the events of a stream, which is resumed where it ends, from the event on that came last.
 *
 * Throws what the service refuses it with, and after `retries.attempts` failures with nothing but beginnings of streams
 * between them: one that lasts is no failure, though nothing changes.
 */
async function* followStream(topic: TopicScope, request: ApiRequest, id: string): AsyncGenerator<ServerEvent, void> {
  const { transport } = topic.context;
  let failures = 0;
  for (;;) {
    let pauseS = FIRST_PAUSE_S; // the server is being stopped, or a proxy ends what takes long
    const headers = { Accept: EVENT_STREAM, ...(id ? { "Last-Event-ID": id } : {}) };
    const events = new EventParser();
    let hasBegun = false;
    try {
      for await (const chunk of transport.listen({ ...request, headers }, EVENT_STREAM, SILENCE_S)) {
        if (hasBegun) failures = 0;
        hasBegun = true;
        for (const event of events.feed(chunk)) {
          failures = 0;
          yield event;
          // Only now: whoever has not come back for the next one may not have used this one.
          if (event.id) id = event.id;
        }
      }
    } catch (error) {
      if (!transport.retries.isTransient(error) || ++failures >= transport.retries.attempts) throw error;
      pauseS = Math.min(FIRST_PAUSE_S * 2 ** failures, transport.retries.maxBackoffS);
    }
    await pause(pauseS, request.signal);
  }
}

/** The changes of a topic, without end: `for await (const change of topic.changes())`. */
export class Changes<V = unknown> implements AsyncIterable<Change<V>> {
  readonly #topic: TopicScope;
  readonly #options: ChangesOptions;
  #lastEventId: string;

  constructor(topic: TopicScope, options: ChangesOptions) {
    this.#topic = topic;
    this.#options = options;
    this.#lastEventId = options.lastEventId ?? "";
  }

  /** Where another stream goes on behind the changes that were given; empty before the first. */
  get lastEventId(): string {
    return this.#lastEventId;
  }

  /** Read the changes. Some may come twice, and none is left out. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Change<V>, void> {
    const { prefix, conditions = {}, signal } = this.#options;
    const query = { ...conditionsQuery(conditions), ...keyBounds({ prefix }), ...termsQuery(this.#topic) };
    const path = `/topics/${segment(this.#topic.name)}/changes`;
    for await (const event of followStream(this.#topic, { method: "GET", path, query, signal }, this.#lastEventId)) {
      const change = this.#parse(event);
      if (change) yield change;
      if (event.id) this.#lastEventId = event.id;
    }
  }

  #parse(event: ServerEvent): Change<V> | undefined {
    const { name, data } = event;
    const topic = this.#topic.name;
    if (name !== "record" && name !== "left" && name !== "absent" && name !== "gap") return undefined;
    return expectKeylane((): Change<V> => {
      const document = parseDocument<Row>(data, this.#topic.context.loads);
      if (name === "gap") return { kind: name, gap: document as unknown as Gap };
      // What a caller with rules may read no more is `left` and absent: it is as if it were deleted.
      const record = parseRecord<V>(document, topic);
      if (record && name !== "absent") return { kind: name, record };
      return { kind: "absent", absent: parseAbsence(document, topic) };
    });
  }
}

/** Whether this is the record, or the absence, that was found before. */
function isSame<V>(found: Found<V>, last: Found<V> | undefined): boolean {
  if (found.absent || !last || last.absent) return found.absent === last?.absent;
  return String(found.position) === String(last.position) && incarnation(found) === incarnation(last);
}

/** "@" and the incarnation of the record's topic: one that was created again has another one. */
function incarnation(record: TopicRecord): string {
  return /@\d+/.exec(record.etag)?.[0] ?? "";
}

/** The tag of an event's record, by its id. */
function tagOf({ id }: ServerEvent): string {
  return id ? `"${id.replace(":", "-")}"` : "";
}
