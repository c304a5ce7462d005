/** How requests carry keys, values, times and positions. */

import type { JsonValue } from "./answers.ts";
import { Position } from "./answers.ts";
import { decodeUtf8, encodeBase64Url, encodeUtf8 } from "./bytes.ts";
import { InvalidArgument } from "./problems.ts";

/** A key: a string is written as UTF-8. */
export type Key = string | Uint8Array;
/** A key to read: of a topic with typed keys also its number, or its fields. */
export type AskedKey = Key | number | { readonly [field: string]: JsonValue };
/** A time (a Date, milliseconds since 1970, ISO 8601), or a position. */
export type Moment = Date | number | string | Position;
/** Parameters of a query; one may have several values. */
export type Query = { readonly [name: string]: string | readonly string[] };

/** The key's bytes. Throws InvalidArgument for an empty one, and for what is not a key. */
export function encodeKey(key: Key): Uint8Array {
  if (typeof key !== "string" && !(key instanceof Uint8Array)) {
    throw new InvalidArgument(`a key is a string or a Uint8Array, not ${typeof key}`);
  }
  if (!key.length) throw new InvalidArgument("the key is empty: records without a key cannot be read by key");
  return typeof key === "string" ? encodeText(key) : key;
}

/** A text as UTF-8. Throws InvalidArgument for half of a surrogate pair, which UTF-8 does not have. */
export function encodeText(text: string): Uint8Array {
  const data = encodeUtf8(text);
  if (decodeUtf8(data) === text) return data;
  throw new InvalidArgument("the text has half of a surrogate pair, which no UTF-8 has");
}

/** A key to read as a text or bytes: numbers, and fields as JSON. */
export function plainKey(key: AskedKey): Key {
  if (typeof key === "number") return String(key);
  return typeof key === "object" && !(key instanceof Uint8Array) ? toJson(key) : key;
}

/** A name as one segment of a path. */
export const segment = (name: string): string => percentEncode(encodeText(name));

function percentEncode(data: Uint8Array): string {
  let text = "";
  for (const byte of data) {
    const character = String.fromCharCode(byte);
    text += /[\w.~-]/.test(character) ? character : `%${byte.toString(16).padStart(2, "0").toUpperCase()}`;
  }
  return text;
}

/**
 * The key as a segment of a path, and the query that belongs to it.
 *
 * URLs resolve `.` and `..`, however they are encoded: base64 hides them.
 */
export function keySegment(key: Key): [string, Query] {
  const data = encodeKey(key);
  const encoded = percentEncode(data);
  if (encoded !== "." && encoded !== "..") return [encoded, {}];
  return [encodeBase64Url(data).replaceAll("=", ""), { key_format: "base64" }];
}

export function keyPath(topic: string, key: Key): [string, Query] {
  const [name, query] = keySegment(key);
  return [`/topics/${segment(topic)}/keys/${name}`, query];
}

/** Bounds of a range as a query; all of them are base64 if one is not UTF-8. */
export function keyBounds(bounds: { readonly [name: string]: Key | undefined }): Query {
  const given = Object.entries(bounds).flatMap(([name, key]) => (key?.length ? [[name, encodeKey(key)] as const] : []));
  const texts = given.map(([name, data]) => [name, decodeUtf8(data)] as const);
  if (texts.every(([, text]) => text !== undefined)) return Object.fromEntries(texts) as Query;
  return { ...Object.fromEntries(given.map(([name, data]) => [name, encodeBase64Url(data)])), key_format: "base64" };
}

/** JSON. Throws InvalidArgument for what has none: NaN, a bigint, a function, a circle. */
export function toJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, (_, each: unknown) => {
      if (typeof each === "number" && !Number.isFinite(each)) throw new TypeError(`${each} is not in JSON`);
      return each;
    });
  } catch (error) {
    throw new InvalidArgument(`the value is not JSON: ${(error as Error).message}`, { cause: error });
  }
  if (text === undefined) throw new InvalidArgument(`a ${typeof value} is not JSON`);
  return text;
}

/** A value's bytes and their content type: bytes and strings as they are, all else as JSON. */
export function encodeValue(value: unknown): [Uint8Array, string] {
  if (value === null || value === undefined) {
    throw new InvalidArgument(`${value} is not a value: delete the key, or write encoded "null" for JSON's null`);
  }
  if (value instanceof Uint8Array) return [value, "application/octet-stream"];
  if (value instanceof ArrayBuffer) return [new Uint8Array(value), "application/octet-stream"];
  if (typeof value === "string") return [encodeText(value), "text/plain; charset=utf-8"];
  return [encodeText(toJson(value)), "application/json"];
}

export function encodeMoment(moment: Moment): string {
  if (!(moment instanceof Date)) return String(moment);
  if (Number.isNaN(moment.getTime())) throw new InvalidArgument("the date is invalid");
  return moment.toISOString();
}

/** `from` and `to`. */
export function timeBounds(start: Moment | undefined, stop: Moment | undefined): Query {
  return {
    ...(start === undefined ? {} : { from: encodeMoment(start) }),
    ...(stop === undefined ? {} : { to: encodeMoment(stop) }),
  };
}
