/** Reads of keys of a topic. */

import type { TopicRecord } from "./answers.ts";
import { Position } from "./answers.ts";
import { binaryText, decodeUtf8, encodeBase64 } from "./bytes.ts";
import type { components } from "./openapi.ts";
import type { Row } from "./parsing.ts";
import { expectKeylane, need, parseBareRecord, parseDocument, parseFreshness, parseRecord, parseWatermarks } from "./parsing.ts";
import { InvalidAnswer, InvalidArgument, KeyAbsent, PositionNotReached } from "./problems.ts";
import type { TopicScope } from "./scope.ts";
import { termsQuery, termsQueryAsOf } from "./scope.ts";
import type { ApiRequest, ApiResponse } from "./transport.ts";
import { jsonBody } from "./transport.ts";
import type { AskedKey, Key } from "./wire.ts";
import { encodeKey, keyPath, plainKey, segment } from "./wire.ts";

type Documents = components["schemas"];

const MAX_KEYS = 1000;
const ABSENT = 404;
const NOT_REACHED = 412;
export const NOT_MODIFIED = 304;
/** Statuses of a read whose record is there, and cannot be shown. */
const UNSHOWN = [413, 422];
/** Statuses of a read that has waited, and whose record is absent, or cannot be shown. */
const REACHED = [ABSENT, 409, ...UNSHOWN];
/** How long a session waits for its own writes: the most that the service allows. */
export const SESSION_WAIT_S = 20;
/** Reads of several keys until an answer has a session's own writes: more only if replicas are behind. */
const ATTEMPTS = 5;

/** How one key is read. */
export interface KeyRead {
  /** Wait until the state has it. */
  readonly minPosition?: Position | undefined;
  /** For so long: 5 seconds by default, 20 at most. */
  readonly waitS?: number;
  /** Throw PreconditionFailed if the record is another one. */
  readonly ifMatch?: { readonly etag: string };
  /** If it is still the record, it is not sent again; with `waitS` a change is waited for. */
  readonly known?: TopicRecord;
}

/** Read one key. Throws KeyAbsent. */
export async function readKey<V>(topic: TopicScope, key: Key, read: KeyRead): Promise<TopicRecord<V>> {
  const { transport, loads } = topic.context;
  const [path, query] = keyPath(topic.name, key);
  const written = read.minPosition ? undefined : ownWrite(topic, key);
  // The read itself would wait as long for a change of the record.
  if (written && isUnread(written, read)) await waitFor(topic, key, written);
  const response = await transport.send({
    method: "GET",
    path,
    query: { ...query, ...(topic.terms.headers ? { envelope: "true" } : {}), ...termsQueryAsOf(topic) },
    headers: keyHeaders(topic, read, written),
    alsoAnswers: [NOT_MODIFIED],
  });
  if (response.status === NOT_MODIFIED) {
    if (!read.known) throw new InvalidAnswer("304 to a read without If-None-Match");
    return { ...(read.known as TopicRecord<V>), ...expectKeylane(() => parseFreshness(response.headers)) };
  }
  if (!topic.terms.headers) return parseBareRecord(response, topic.name, key, loads);
  return expectKeylane(() => need(parseRecord<V>(parseDocument<Row>(response.body, loads), topic.name), "a record"));
}

/** The position of the session's own write of the key. */
export function ownWrite(topic: TopicScope, key: Key): Position | undefined {
  return topic.terms.asOf === undefined ? topic.context.ledger?.positionOf(topic.name, key) : undefined;
}

/** Whether the record that the caller knows may be older than its own write. */
function isUnread(written: Position, read: KeyRead): boolean {
  if (!read.known || read.waitS !== undefined) return false;
  const { partition, offset } = read.known.position;
  return partition !== written.partition || offset < written.offset;
}

/** The headers of a read that needs a position in the state, and waits for it for so long. */
export function positionHeaders(position: Position | undefined, waitS: number | undefined): { [name: string]: string } {
  return {
    ...(position ? { "Keylane-Min-Position": String(position) } : {}),
    ...(waitS === undefined ? {} : { Prefer: `wait=${waitS}` }),
  };
}

function keyHeaders(topic: TopicScope, read: KeyRead, written: Position | undefined): { [name: string]: string } {
  if (read.ifMatch && topic.terms.headers) {
    throw new InvalidArgument("ifMatch and headers exclude each other: an envelope has no strong ETag");
  }
  const waitS = read.waitS ?? (written && !read.known ? SESSION_WAIT_S : undefined);
  return {
    ...positionHeaders(read.minPosition ?? written, waitS),
    ...(read.ifMatch ? { "If-Match": read.ifMatch.etag } : {}),
    ...(read.known ? { "If-None-Match": read.known.etag } : {}),
  };
}

/** Read keys in requests of up to MAX_KEYS; a larger atomic read is refused by the service. */
export async function readMany<V>(
  topic: TopicScope,
  asked: Iterable<AskedKey>,
  atomic: boolean,
): Promise<Map<Key, TopicRecord<V> | undefined>> {
  const keys = [...new Set([...asked].map(plainKey))];
  const found = new Map<Key, TopicRecord<V> | undefined>();
  const size = atomic ? Math.max(1, keys.length) : MAX_KEYS;
  for (let start = 0; start < keys.length; start += size) {
    const chunk = keys.slice(start, start + size);
    const coded = chunk.map(encodeKey);
    const wanted = new Set(coded.map(binaryText));
    const request: ApiRequest = {
      method: "POST",
      path: `/topics/${segment(topic.name)}/keys:read`,
      query: { ...termsQuery(topic), ...(atomic ? { atomic: "true" } : {}) },
      headers: { "Content-Type": "application/json" },
      body: jsonBody(keyList(coded)),
    };
    const response = await readOwnWrites(topic, request, (key) => wanted.has(key));
    expectKeylane(() => {
      const { records } = parseDocument<Documents["Records"]>(response.body, topic.context.loads);
      if (records.length !== chunk.length) throw new TypeError(`${records.length} records for ${chunk.length} keys`);
      chunk.forEach((key, index) => found.set(key, parseRecord<V>(records[index]!, topic.name)));
    });
  }
  return found;
}

/** Keys as a body has them: all of them in base64 if one is not UTF-8. */
function keyList(coded: readonly Uint8Array[]): Documents["ManyKeys"] {
  const texts = coded.map(decodeUtf8);
  return texts.every((text) => text !== undefined)
    ? { keys: texts, key_format: "text" }
    : { keys: coded.map(encodeBase64), key_format: "base64" };
}

/** Whether the topic has a record under a key, without its value. Throws UnknownTopic. */
export async function hasKey(topic: TopicScope, key: Key): Promise<boolean> {
  const [path, query] = keyPath(topic.name, key);
  const { fields: _, ...terms } = topic.terms;
  const request: ApiRequest = {
    method: "HEAD",
    path,
    query: { ...query, ...termsQueryAsOf({ ...topic, terms }) },
    headers: keyHeaders(topic, {}, ownWrite(topic, key)),
    alsoAnswers: [...UNSHOWN, ABSENT],
  };
  const response = await topic.context.transport.send(request);
  if (response.status !== ABSENT) return true;
  if (response.headers.has("keylane-watermark")) return false;
  // Not the key alone is missing; an answer to HEAD has no body that says what.
  try {
    await topic.context.transport.send({ ...request, method: "GET", alsoAnswers: UNSHOWN });
    return true;
  } catch (error) {
    if (error instanceof KeyAbsent) return false;
    throw error;
  }
}

/** Count the topic's keys; in a session, with those that it wrote. */
export async function countKeys(topic: TopicScope): Promise<number> {
  // A count has no values: the service refuses `fields` here.
  const { fields: _, ...terms } = topic.terms;
  const path = `/topics/${segment(topic.name)}/count`;
  const request: ApiRequest = { method: "GET", path, query: termsQuery({ ...topic, terms }) };
  const { body } = await readOwnWrites(topic, request, () => true);
  return expectKeylane(() => need(parseDocument<Documents["KeyCount"]>(body).count, "count"));
}

/**
 * Send a request about several keys; in a session again, until the answer has the session's writes.
 *
 * Such a request cannot carry positions. So its watermarks are compared with the writes of wanted keys. A read of one
 * key waits for what is missing. Throws PositionNotReached, also if the answers go on lacking it because a replica
 * that is behind gives them.
 */
export async function readOwnWrites(
  topic: TopicScope,
  request: ApiRequest,
  isWanted: (key: string) => boolean,
): Promise<ApiResponse> {
  const { ledger, transport } = topic.context;
  const waited = new Map<number, number>();
  for (let attempt = 1; ; attempt++) {
    const response = await transport.send(request);
    if (!ledger || topic.terms.asOf !== undefined) return response;
    // A stray's partition is in no watermark of the answer: to have waited for it is enough.
    const marks = new Map([...waited, ...parseWatermarks(parseDocument<Documents["Page"]>(response.body))]);
    const missing = ledger.missing(topic.name, isWanted, marks);
    if (!missing[0]) return response;
    if (attempt > ATTEMPTS) throw notReached(topic.name, missing[0][1], `in ${attempt} answers`);
    for (const [key, position] of missing) {
      await waitFor(topic, key, position);
      waited.set(position.partition, position.offset + 1);
    }
  }
}

/** Wait until the state has a position, for as long as the service allows. Throws PositionNotReached. */
async function waitFor(topic: TopicScope, key: Key, position: Position): Promise<void> {
  const [path, query] = keyPath(topic.name, key);
  const headers = positionHeaders(position, SESSION_WAIT_S);
  // HEAD: the record itself need not be sent. So all that is known of a refusal is its status.
  const alsoAnswers = [...REACHED, NOT_REACHED];
  const { status } = await topic.context.transport.send({ method: "HEAD", path, query, headers, alsoAnswers });
  if (status === NOT_REACHED) throw notReached(topic.name, position, `in the state after ${SESSION_WAIT_S} s`);
}

function notReached(topic: string, position: Position, where: string): PositionNotReached {
  const detail = `position ${position} of topic "${topic}" is not ${where}`;
  return new PositionNotReached(NOT_REACHED, { type: "position-not-reached", detail });
}
