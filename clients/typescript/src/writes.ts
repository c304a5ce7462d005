/** Writes of records. */

import type { WriteFailed, Written } from "./answers.ts";
import { Position } from "./answers.ts";
import { encodeBase64, encodeUtf8 } from "./bytes.ts";
import type { components } from "./openapi.ts";
import { expectKeylane, need, parseDocument } from "./parsing.ts";
import { InvalidArgument, RequestRefused, Unavailable } from "./problems.ts";
import type { TopicScope } from "./scope.ts";
import { requireNow } from "./scope.ts";
import { jsonBody } from "./transport.ts";
import type { Key, Query } from "./wire.ts";
import { encodeKey, encodeValue, keyPath, segment } from "./wire.ts";

type Documents = components["schemas"];
/** One record's part of the answer to a push in REST Proxy's format, with what Keylane adds. */
interface PushedEntry {
  readonly partition?: number;
  readonly offset?: number;
  readonly error_code?: number | null;
  readonly error?: string | null;
  readonly status?: string;
  readonly id?: string;
  readonly code?: string;
  readonly retriable?: boolean;
  readonly uncertain?: boolean;
  readonly superseded?: boolean;
}

const BINARY = "application/vnd.kafka.binary.v2+json";
const RETRIABLE_CODE = 50003;

/** Headers of a record in Kafka, by name or as pairs, of which a name may have several; strings are UTF-8. */
export type RecordHeaders =
  | { readonly [name: string]: string | Uint8Array | null }
  | readonly (readonly [string, string | Uint8Array | null])[];

/** A record to push. `value`: as for a put; null is a tombstone. */
export interface NewRecord {
  readonly key?: Key;
  readonly value: unknown;
  readonly partition?: number;
  /** Now, by default. */
  readonly timestampMs?: number;
  readonly headers?: RecordHeaders;
}

export interface WriteOptions {
  readonly headers?: RecordHeaders;
  /** The service answers the same write with the same key as it did the first one: it may be sent again. */
  readonly idempotencyKey?: string;
  /** The answer comes once the record is in the write-ahead log, if there is one. */
  readonly respondAsync?: boolean;
}

export interface PutOptions extends WriteOptions {
  /** The value is JSON, and is written by this schema of the topic's subject; "raw": as it is. */
  readonly schema?: number | "latest" | "raw";
}

/** Write one record: a body with its content type, or a tombstone. */
export async function writeKey(
  topic: TopicScope,
  key: Key,
  encoded: readonly [Uint8Array, string] | undefined,
  options: PutOptions,
): Promise<Written> {
  requireNow(topic, "a write");
  const [path, query] = keyPath(topic.name, key);
  const [body, type] = encoded ?? [];
  if (options.headers && Object.keys(options.headers).length) {
    if (options.schema !== undefined) throw new InvalidArgument("a record with headers takes no schema");
    return writeRecord(topic, { key, value: body ?? null, headers: options.headers }, options);
  }
  const headers = writeHeaders(topic, options);
  const response = await topic.context.transport.send({
    method: body ? "PUT" : "DELETE",
    path,
    query: { ...query, ...schemaQuery(options.schema) },
    headers: type ? { ...headers, "Content-Type": type } : headers,
    ...(body ? { body } : {}),
    isRepeatable: "Idempotency-Key" in headers,
  });
  const written = expectKeylane(() => {
    const document = parseDocument<Partial<Documents["Written"]> & Partial<Documents["Accepted"]>>(response.body);
    const isReplayed = response.headers.get("idempotency-replayed") === "true";
    const isQueued = document.status === "queued";
    const position = isQueued ? undefined : positionOf(document);
    const queuedId = isQueued ? need(document.id, "id") : undefined;
    return { isWritten: true, topic: topic.name, key, position, queuedId, isReplayed } as const;
  });
  note(topic, written);
  return written;
}

function schemaQuery(schema: PutOptions["schema"]): Query {
  if (schema === undefined) return {};
  return schema === "raw" ? { raw: "true" } : { schema: String(schema) };
}

/** Write one record as a push does, which has its headers. */
async function writeRecord(topic: TopicScope, record: NewRecord, options: WriteOptions): Promise<Written> {
  const [result] = await push(topic, [record], options);
  if (result!.isWritten) return result!;
  const { message, code, isUncertain, isRetriable, isSuperseded } = result as WriteFailed;
  const problem = { detail: message, ...(code === undefined ? {} : { code }), uncertain: isUncertain };
  if (isRetriable || isUncertain || isSuperseded) throw new Unavailable(504, { ...problem, type: "unacknowledged" });
  throw new RequestRefused(422, { ...problem, type: "record-refused" });
}

/** Write records to one topic, in REST Proxy's binary format: it has any bytes, and tombstones. */
export async function push(
  topic: TopicScope,
  records: readonly NewRecord[],
  options: WriteOptions,
): Promise<(Written | WriteFailed)[]> {
  requireNow(topic, "a push");
  if (!records.length) return [];
  const headers = writeHeaders(topic, options);
  const { body } = await topic.context.transport.send({
    method: "POST",
    path: `/topics/${segment(topic.name)}`,
    headers: { ...headers, "Content-Type": BINARY },
    body: jsonBody({ records: records.map(renderRecord) }),
    isRepeatable: "Idempotency-Key" in headers,
  });
  const results = expectKeylane(() => {
    const { offsets } = parseDocument<{ offsets: PushedEntry[] }>(body);
    if (offsets.length !== records.length) throw new TypeError(`${offsets.length} results of ${records.length} records`);
    return records.map(({ key }, index) => resultOf(topic.name, key, offsets[index]!));
  });
  for (const result of results) if (result.isWritten) note(topic, result);
  return results;
}

function resultOf(topic: string, key: Key | undefined, entry: PushedEntry): Written | WriteFailed {
  const isQueued = entry.status === "queued";
  if (!isQueued && (entry.error_code ?? undefined) !== undefined) {
    return {
      isWritten: false,
      topic,
      key,
      message: entry.error ?? "",
      code: entry.code,
      isRetriable: entry.retriable ?? entry.error_code === RETRIABLE_CODE,
      isUncertain: entry.uncertain === true,
      isSuperseded: entry.superseded === true,
    };
  }
  const position = isQueued ? undefined : positionOf(entry);
  return { isWritten: true, topic, key, position, queuedId: isQueued ? entry.id : undefined, isReplayed: false };
}

function positionOf({ partition, offset }: { partition?: number; offset?: number }): Position {
  return new Position(need(partition, "partition"), need(offset, "offset"));
}

function renderRecord({ key, value, partition, timestampMs, headers = [] }: NewRecord) {
  const pairs = (Array.isArray(headers) ? headers : Object.entries(headers)) as (readonly [string, unknown])[];
  return {
    value: value === null ? null : encodeBase64(encodeValue(value)[0]),
    ...(key === undefined ? {} : { key: encodeBase64(encodeKey(key)) }),
    ...(partition === undefined ? {} : { partition }),
    ...(timestampMs === undefined ? {} : { timestamp: timestampMs }),
    ...(pairs.length ? { headers: pairs.map(renderHeader) } : {}),
  };
}

function renderHeader([name, value]: readonly [string, unknown]) {
  if (value === null) return { name, value };
  if (typeof value !== "string" && !(value instanceof Uint8Array)) {
    throw new InvalidArgument(`the header "${name}" is a ${typeof value}, not a string or a Uint8Array`);
  }
  return { name, value: encodeBase64(typeof value === "string" ? encodeUtf8(value) : value) };
}

function writeHeaders(topic: TopicScope, options: WriteOptions): { [name: string]: string } {
  const key = options.idempotencyKey ?? (topic.context.idempotentWrites ? randomKey() : undefined);
  return {
    ...(key === undefined ? {} : { "Idempotency-Key": key }),
    ...(options.respondAsync ? { Prefer: "respond-async" } : {}),
  };
}

/** `crypto.randomUUID` is for pages of https alone. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function note({ context, name }: TopicScope, { key, position }: Written): void {
  if (key !== undefined && position) context.ledger?.note(name, key, position);
}
