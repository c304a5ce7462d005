/** Answers from responses. What lacks something is InvalidAnswer: of another server, or version. */

import type {
  Absent,
  FoundKey,
  HistoryEntry,
  RecordHeader,
  TopicRecord,
  ValueFormat,
  Watermarks,
  Window,
} from "./answers.ts";
import { Position } from "./answers.ts";
import { decodeBase64, decodeUtf8 } from "./bytes.ts";
import { KeylaneError } from "./errors.ts";
import type { components } from "./openapi.ts";
import { InvalidAnswer } from "./problems.ts";
import type { ApiResponse } from "./transport.ts";
import type { Key } from "./wire.ts";

type Documents = components["schemas"];
export type Row = Documents["Row"] & Partial<Pick<Documents["Record"], "topic" | "watermark" | "age_ms" | "incomplete">>;
export type Freshness = Pick<Documents["Page"], "watermarks" | "age_ms">;
export type Loads = (text: string) => unknown;

/** An ETag without its end. */
const TAG = /"\d+-\d+(?:@\d+)?(?:-bytes)?/;

/** Run what reads an answer. Throws InvalidAnswer for one that lacks what Keylane's has. */
export function expectKeylane<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof KeylaneError && error.name !== "InvalidArgument") throw error;
    throw new InvalidAnswer(
      `the answer is not what this client expects (${(error as Error).message}):` +
        " is the URL that of Keylane, and is its version the client's?",
      { cause: error },
    );
  }
}

/** A member that the document must have. */
export function need<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new TypeError(`it lacks ${name}`);
  return value;
}

/** Parse a JSON object. Throws InvalidAnswer. */
export function parseDocument<T>(body: Uint8Array | string, loads: Loads = JSON.parse): T {
  return expectKeylane(() => {
    const found = loads(typeof body === "string" ? body : textOf(body));
    if (typeof found !== "object" || found === null || Array.isArray(found)) throw new TypeError("no JSON object");
    return found as T;
  });
}

/** Parse the headers of a read of one key. */
export function parseFreshness(headers: Headers): Pick<TopicRecord, "watermark" | "ageMs" | "isIncomplete"> {
  const [watermark, ageMs] = [headers.get("keylane-watermark"), headers.get("keylane-age-ms")];
  return {
    watermark: watermark ? Position.parse(watermark) : undefined,
    ageMs: ageMs === null ? undefined : Number(ageMs),
    isIncomplete: headers.get("keylane-incomplete") === "true",
  };
}

/** Parse a read of one key whose body is the value itself. */
export function parseBareRecord<V>(response: ApiResponse, topic: string, key: Key, loads: Loads): TopicRecord<V> {
  return expectKeylane(() => {
    const { headers, body } = response;
    const timestamp = headers.get("keylane-timestamp");
    const position = Position.parse(headers.get("keylane-position") ?? "");
    return {
      absent: false,
      topic,
      key: normalKey(key),
      ...parseBody<V>(response, loads),
      position,
      timestampMs: timestamp === null ? undefined : Number(timestamp),
      ...parseFreshness(headers),
      headers: undefined,
      valueBytes: undefined,
      schemaId: undefined,
      undecoded: undefined,
      raw: body,
      etag: tagOf(headers) || position.etag,
    };
  });
}

/** The ETag as the service has it: a proxy that compresses makes it weak, or adds to its end. */
function tagOf(headers: Headers): string | null {
  const given = headers.get("etag");
  const found = given && TAG.exec(given)?.[0];
  return found ? `${found}"` : given;
}

/** Parse the headers of 404 `key-absent`. */
export function parseAbsent(headers: Headers, topic: string, key: Key): Absent {
  const { watermark, ageMs } = expectKeylane(() => parseFreshness(headers));
  return { absent: true, topic, key: normalKey(key), watermark, ageMs };
}

/** Parse a document with `absent`. Call it within `expectKeylane`. */
export function parseAbsence(document: Row, topic: string): Absent {
  const watermark = document.watermark ? Position.parse(document.watermark) : undefined;
  return { absent: true, topic, key: parseKey(document), watermark, ageMs: document.age_ms };
}

/** Parse a record of a document; undefined where it is absent. Call it within `expectKeylane`. */
export function parseRecord<V>(document: Row, topic: string, tag = ""): TopicRecord<V> | undefined {
  if (document.absent) return undefined;
  const position = parsePosition(document);
  return {
    absent: false,
    topic: document.topic ?? topic,
    key: parseKey(document),
    value: parseValue(document) as V,
    valueFormat: need(document.value_format, "value_format"),
    position,
    timestampMs: document.timestamp ?? undefined,
    watermark: document.watermark ? Position.parse(document.watermark) : undefined,
    ageMs: document.age_ms,
    isIncomplete: document.incomplete === true,
    headers: parseHeaders(document),
    valueBytes: document.value_bytes,
    schemaId: document.schema_id,
    undecoded: document.undecoded,
    raw: undefined,
    etag: tag || position.etag,
  };
}

/** Parse an entry of a history; its freshness is the page's. */
export function parseHistoryEntry<V>(document: Documents["Entry"], page: Freshness): HistoryEntry<V> {
  const isDeleted = document.deleted === true;
  const position = parsePosition(document);
  const next = page.watermarks[position.partition];
  return {
    position,
    timestampMs: document.timestamp ?? undefined,
    isDeleted,
    value: isDeleted ? undefined : (parseValue(document) as V),
    valueFormat: isDeleted ? "null" : need(document.value_format, "value_format"),
    watermark: next === undefined ? undefined : new Position(position.partition, next),
    ageMs: page.age_ms,
    headers: parseHeaders(document),
  };
}

/** Parse a window of a view. */
export function parseWindow(document: Documents["Window"], page: Pick<Freshness, "age_ms">): Window {
  return {
    key: parseKey(document),
    startMs: document.start,
    endMs: document.end,
    isFinal: document.final === true,
    changedMs: need(document.changed, "changed"),
    values: need(document.values, "values"),
    ageMs: page.age_ms,
  };
}

/** Parse `key` and `key_format`. */
export function parseKey(document: { key?: unknown; key_format?: string }): FoundKey {
  const key = need(document.key, "key") as FoundKey;
  return document.key_format === "base64" ? decodeBase64(key as string) : key;
}

/** Parse the next offset of each partition. */
export function parseWatermarks(document: { readonly watermarks?: { [partition: string]: number } }): Watermarks {
  return new Map(Object.entries(document.watermarks ?? {}).map(([name, offset]) => [Number(name), offset]));
}

function parsePosition({ partition, offset }: { partition?: number; offset?: number }): Position {
  return new Position(need(partition, "partition"), need(offset, "offset"));
}

function parseBody<V>({ headers, body }: ApiResponse, loads: Loads): { value: V; valueFormat: ValueFormat } {
  const kind = headers.get("content-type")?.split(";")[0]!.trim();
  if (kind === "application/json") return { value: loads(textOf(body)) as V, valueFormat: "json" };
  if (kind === "text/plain") return { value: textOf(body) as V, valueFormat: "text" };
  return { value: body as V, valueFormat: "base64" };
}

function textOf(body: Uint8Array): string {
  return need(decodeUtf8(body), "UTF-8");
}

function parseValue(document: { value?: unknown; value_format?: string }): unknown {
  const value = need(document.value, "value");
  return document.value_format === "base64" ? decodeBase64(value as string) : value;
}

function parseHeaders(document: Pick<Row, "headers">): readonly RecordHeader[] | undefined {
  return document.headers?.map((each) => ({ name: each.name, value: parseValue(each) as RecordHeader["value"] }));
}

/** A key as documents have it: a string if it is UTF-8. */
function normalKey(key: Key): Key {
  return typeof key === "string" ? key : (decodeUtf8(key) ?? key);
}
