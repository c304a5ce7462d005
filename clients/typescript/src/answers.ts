/** What the service answers. Where something may be missing, it is undefined. */

import { InvalidArgument } from "./problems.ts";

/** Where a record is in its topic. Written `partition:offset`. */
export class Position {
  readonly partition: number;
  readonly offset: number;

  constructor(partition: number, offset: number) {
    this.partition = partition;
    this.offset = offset;
  }

  /** Throws InvalidArgument for what is not `partition:offset`. */
  static parse(text: string): Position {
    const found = /^(\d+):(\d+)$/.exec(text);
    if (!found) throw new InvalidArgument(`"${text}" is not a position: write PARTITION:OFFSET, as in 2:38635`);
    return new Position(Number(found[1]), Number(found[2]));
  }

  toString(): string {
    return `${this.partition}:${this.offset}`;
  }

  /** As in the API's documents. */
  toJSON(): string {
    return this.toString();
  }

  /** The tag by which a condition names the record that is here. */
  get etag(): string {
    return `"${this.partition}-${this.offset}"`;
  }
}

/** A key as answers have it: bytes where it is not UTF-8, and of a topic with typed keys what JSON has. */
export type FoundKey = string | Uint8Array | JsonValue;
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [name: string]: JsonValue };
export type ValueFormat = "json" | "text" | "base64" | "left-in-kafka";

/** A header of a record in Kafka: its value is bytes where it is not UTF-8, null where it has none. */
export interface RecordHeader {
  readonly name: string;
  readonly value: string | Uint8Array | null;
}

/** A record of a key. */
export interface TopicRecord<V = unknown> {
  readonly absent: false;
  readonly topic: string;
  readonly key: FoundKey;
  /** JSON, else a string, else bytes, as `valueFormat` says; null for `left-in-kafka`. */
  readonly value: V;
  readonly valueFormat: ValueFormat;
  readonly position: Position;
  /** The record's own, in milliseconds since 1970. */
  readonly timestampMs: number | undefined;
  /** The next offset of the key's lane: every record below it is in the answer. */
  readonly watermark: Position | undefined;
  /** Nothing that Kafka acknowledged longer ago is missing; undefined while the lane is being built. */
  readonly ageMs: number | undefined;
  /** Kafka's retention removed records before the lane could contain them. */
  readonly isIncomplete: boolean;
  /** Undefined where they were not asked for, or the topic does not keep them. */
  readonly headers: readonly RecordHeader[] | undefined;
  /** The size of a value that is left in Kafka. */
  readonly valueBytes: number | undefined;
  readonly schemaId: number | undefined;
  /** Why the value could not be decoded, and is given as bytes. */
  readonly undecoded: string | undefined;
  /** The value's bytes, in answers to reads of one key. */
  readonly raw: Uint8Array | undefined;
  /** The tag by which a condition names the record. */
  readonly etag: string;
}

/** There is no record under the key, as of the watermark: it was never written, or was deleted. */
export interface Absent {
  readonly absent: true;
  readonly topic: string;
  readonly key: FoundKey;
  readonly watermark: Position | undefined;
  readonly ageMs: number | undefined;
}

/** An earlier record of a key, or its deletion, which has no value. */
export interface HistoryEntry<V = unknown> {
  readonly position: Position;
  readonly timestampMs: number | undefined;
  readonly isDeleted: boolean;
  readonly value: V | undefined;
  readonly valueFormat: ValueFormat | "null";
  readonly watermark: Position | undefined;
  readonly ageMs: number | undefined;
  readonly headers: readonly RecordHeader[] | undefined;
}

/** A page of what was found. `scanned`: how many entries of an index were looked at. */
export interface FoundPage<V = unknown> {
  readonly records: readonly TopicRecord<V>[];
  /** The cursor of the page after it; undefined where nothing may follow. */
  readonly next: string | undefined;
  readonly scanned: number;
  readonly watermarks: Watermarks;
  readonly ageMs: number | undefined;
}

/** The next offset of each partition. */
export type Watermarks = ReadonlyMap<number, number>;

/** A write. `position` is undefined, and `queuedId` is not, for a record in the write-ahead log. */
export interface Written {
  readonly isWritten: true;
  readonly topic: string;
  readonly key: string | Uint8Array | undefined;
  readonly position: Position | undefined;
  readonly queuedId: string | undefined;
  /** The answer is the saved one of an earlier request with the same idempotency key. */
  readonly isReplayed: boolean;
}

/** A record of a push that was not written, and why. */
export interface WriteFailed {
  readonly isWritten: false;
  readonly topic: string;
  readonly key: string | Uint8Array | undefined;
  readonly message: string;
  readonly code: string | undefined;
  /** The same record may succeed later. */
  readonly isRetriable: boolean;
  /** It may have been written all the same. */
  readonly isUncertain: boolean;
  /** A newer record of its key was written, so this one must not be sent again. */
  readonly isSuperseded: boolean;
}

/** One window of a view. Its bounds are undefined where the view has no windows. */
export interface Window {
  readonly key: FoundKey;
  readonly startMs: number | undefined;
  readonly endMs: number | undefined;
  readonly isFinal: boolean;
  readonly changedMs: number;
  readonly values: { readonly [column: string]: unknown };
  readonly ageMs: number | undefined;
}

/** A change of a topic. `left`: the record does not meet the conditions of the stream (any more). */
export type Change<V = unknown> =
  | { readonly kind: "record" | "left"; readonly record: TopicRecord<V> }
  | { readonly kind: "absent"; readonly absent: Absent }
  | { readonly kind: "gap"; readonly gap: Gap };

/** Records of a partition that were removed before the server read them: read the keys again. */
export interface Gap {
  readonly partition: number;
  readonly from: number;
  /** 0: the topic was created again, or built again. */
  readonly to: number;
}
