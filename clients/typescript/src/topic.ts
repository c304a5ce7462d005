/** One topic. */

import type { Absent, FoundKey, HistoryEntry, TopicRecord, WriteFailed, Written } from "./answers.ts";
import type { Conditions } from "./conditions.ts";
import { Find } from "./finding.ts";
import type { ChangesOptions, StreamOptions } from "./following.ts";
import { Changes, watchKey } from "./following.ts";
import type { KeyRange, PageSize, TimeRange } from "./pages.ts";
import { history, scan, scanKeys } from "./pages.ts";
import { KeyAbsent } from "./problems.ts";
import type { KeyRead } from "./reads.ts";
import { countKeys, hasKey, readKey, readMany } from "./reads.ts";
import type { Context, Terms, TopicScope } from "./scope.ts";
import { requireNow } from "./scope.ts";
import type { SyncOptions } from "./sync.ts";
import { LiveTopic } from "./sync.ts";
import type { AskedKey, Key, Moment } from "./wire.ts";
import { encodeValue, plainKey } from "./wire.ts";
import type { NewRecord, PutOptions, WriteOptions } from "./writes.ts";
import { push, writeKey } from "./writes.ts";

/** One topic. `V`: what its values are; nothing checks that they are. */
export class Topic<V = unknown> {
  readonly #scope: TopicScope;

  constructor(name: string, context: Context, terms: TopicScope["terms"] = {}) {
    this.#scope = { name, context, terms };
  }

  get name(): string {
    return this.#scope.name;
  }

  /** The topic with other terms for its reads; what is not given stays as it is. */
  reading(terms: Terms): Topic<V> {
    return new Topic(this.name, this.#scope.context, { ...this.#scope.terms, ...terms });
  }

  /** The topic as of a moment: a time, or for reads of one key a position. */
  at(moment: Moment): Topic<V> {
    return new Topic(this.name, this.#scope.context, { ...this.#scope.terms, asOf: moment });
  }

  /** Read a key's record. Throws KeyAbsent if there is none. */
  async read(key: AskedKey): Promise<TopicRecord<V>> {
    return readKey(this.#scope, plainKey(key), {});
  }

  /** Read a key's record; undefined if there is none. */
  async get(key: AskedKey, options: KeyRead = {}): Promise<TopicRecord<V> | undefined> {
    try {
      return await readKey<V>(this.#scope, plainKey(key), options);
    } catch (error) {
      if (error instanceof KeyAbsent) return undefined;
      throw error;
    }
  }

  /**
   * Read any number of keys, 1,000 in a request; in one request, at one moment, if `atomic`.
   *
   * A key that is given as a number or by its fields is a text in the result.
   */
  async getMany(
    keys: Iterable<AskedKey>,
    { atomic = false }: { readonly atomic?: boolean } = {},
  ): Promise<Map<Key, TopicRecord<V> | undefined>> {
    requireNow(this.#scope, "getMany");
    return readMany(this.#scope, keys, atomic);
  }

  /** Whether the key has a record, without reading its value. */
  async contains(key: AskedKey): Promise<boolean> {
    return hasKey(this.#scope, plainKey(key));
  }

  /** Write a record. Bytes and strings are written as they are, all else as JSON. */
  async put(key: Key, value: V | Uint8Array | string, options: PutOptions = {}): Promise<Written> {
    return writeKey(this.#scope, key, encodeValue(value), options);
  }

  /** Write a tombstone: the key is absent from then on. */
  async delete(key: Key, options: WriteOptions = {}): Promise<Written> {
    return writeKey(this.#scope, key, undefined, options);
  }

  /** Write up to 10,000 records in one request; each has a result of its own, in the same order. */
  async push(
    records: Iterable<NewRecord>,
    options: Pick<WriteOptions, "idempotencyKey"> = {},
  ): Promise<(Written | WriteFailed)[]> {
    return push(this.#scope, [...records], options);
  }

  /**
   * Read the records of a prefix, or of the keys from `start` on and below `stop`, in bytewise order.
   *
   * The topic needs `index = true`. As of a time, a key whose history is too short is HistoryTooShort.
   */
  scan(range: KeyRange & PageSize = {}): AsyncGenerator<TopicRecord<V>, void> {
    return scan(this.#scope, range);
  }

  /** Read keys without their records, as `scan` does. */
  keys(range: KeyRange & PageSize = {}): AsyncGenerator<FoundKey, void> {
    return scanKeys(this.#scope, range);
  }

  /** Count the keys that have a record. The topic needs `index = true`. */
  async count(): Promise<number> {
    requireNow(this.#scope, "a count");
    return countKeys(this.#scope);
  }

  /** What finds records by fields: iterate over it, or call `count` or `page`. Nothing is sent. */
  find(conditions: Conditions = {}): Find<V> {
    requireNow(this.#scope, "find");
    return new Find(this.#scope, { conditions });
  }

  /** Read a key's records from `start` on and before `stop`, newest first. */
  history(key: AskedKey, range: TimeRange = {}): AsyncGenerator<HistoryEntry<V>, void> {
    requireNow(this.#scope, "a history");
    return history(this.#scope, plainKey(key), range);
  }

  /**
   * Read a key's record, then each change as it arrives, without end. `absent`: it is not there (now).
   *
   * Where the service does not stream changes, each request waits up to `waitS` for one. Several changes in a short
   * time are seen as one.
   */
  watch(key: AskedKey, options: StreamOptions & { readonly waitS?: number } = {}): AsyncGenerator<TopicRecord<V> | Absent, void> {
    requireNow(this.#scope, "a watch");
    return watchKey(this.#scope, plainKey(key), { waitS: 20, ...options });
  }

  /** The topic's changes from now on, or from `lastEventId` on. Nothing is sent until it is iterated over. */
  changes(options: ChangesOptions = {}): Changes<V> {
    requireNow(this.#scope, "a stream of changes");
    return new Changes(this.#scope, options);
  }

  /** The records as they are now, kept so: the whole topic, or those of a prefix or conditions, then its changes. */
  sync(options: SyncOptions = {}): LiveTopic<V> {
    requireNow(this.#scope, "a live copy");
    return new LiveTopic(this.#scope, options);
  }
}
