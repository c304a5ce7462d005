/**
 * A live copy of a topic: the whole of it, then its changes.
 *
 * 1. A snapshot brings the records of one lane after the other. A lane counts once its line has come: what is cut off
 *    goes on behind the last one, by its cursor.
 * 2. The stream of changes goes on where the snapshot was. What was read meanwhile may come again.
 * 3. A gap in the stream needs another snapshot, beside the stream: its records are kept where no change came later.
 */

import type { Absent, FoundKey, TopicRecord } from "./answers.ts";
import { binaryText } from "./bytes.ts";
import type { Conditions } from "./conditions.ts";
import { conditionsQuery } from "./conditions.ts";
import type { KeylaneError, ProblemDocument } from "./errors.ts";
import { ProblemError } from "./errors.ts";
import type { StreamOptions } from "./following.ts";
import { Changes } from "./following.ts";
import type { Row } from "./parsing.ts";
import { expectKeylane, need, parseAbsence, parseDocument, parseRecord } from "./parsing.ts";
import { Unreachable } from "./problems.ts";
import type { TopicScope } from "./scope.ts";
import { termsQuery } from "./scope.ts";
import { pause, problemOf } from "./transport.ts";
import type { Key, Query } from "./wire.ts";
import { keyBounds, segment } from "./wire.ts";

const NDJSON = "application/x-ndjson";
const OUTDATED = "snapshot-outdated";
/** A snapshot is written as it is read: a server from which no byte comes for that long is gone. */
const SILENCE_S = 60;

export interface SyncOptions extends StreamOptions {
  /** Keys that begin with this. */
  readonly prefix?: Key;
  /** Records that meet these conditions on the topic's fields. */
  readonly conditions?: Conditions;
}

/** What a live copy says to whoever subscribes: a record is there, or has changed; or it is gone. */
export type SyncChange<V> = TopicRecord<V> | Absent;

interface Lane {
  readonly partition: number;
  readonly next_offset: number;
  readonly as_of_ms: number;
  readonly cursor: string;
}

/** A line that is not of a key; exactly one of these. */
interface Mark {
  readonly begin?: { readonly at: string; readonly ttl_ms?: number };
  readonly lane?: Lane;
  readonly end?: { readonly at?: string };
  readonly problem?: ProblemDocument & { readonly status: number };
}

interface Snapshot<V> {
  readonly records: Map<string, TopicRecord<V>>;
  at: string;
  ttlMs: number;
  cursor: string | undefined;
}

/** The records of a topic, as they are now. Begun by `topic.sync()`; `close` ends it. */
export class LiveTopic<V = unknown> implements Iterable<TopicRecord<V>> {
  /** Fulfilled once all records are there; rejected if there is an error before. */
  readonly ready: Promise<void>;
  /** Fulfilled by `close`, rejected by an error or by the reason of `signal`: there is no change after it. */
  readonly closed: Promise<void>;
  readonly #topic: TopicScope;
  readonly #query: Query;
  readonly #options: SyncOptions;
  readonly #ending = new AbortController();
  readonly #signal: AbortSignal;
  readonly #subscribers = new Set<(change: SyncChange<V>) => void>();
  #records = new Map<string, TopicRecord<V>>();
  #ttlMs = Infinity;
  /** What tells positions of this topic from those of one that was created or built again. */
  #incarnation: string | undefined;
  /** What came by the stream while a snapshot is read; undefined while none is. */
  #meanwhile: Map<string, SyncChange<V>> | undefined;
  #hasGap = false;
  #isClosed = false;

  constructor(topic: TopicScope, options: SyncOptions) {
    this.#topic = topic;
    this.#options = options;
    const { prefix, conditions = {}, signal } = options;
    this.#query = { ...conditionsQuery(conditions), ...keyBounds({ prefix }), ...termsQuery(topic) };
    this.#signal = signal ? AbortSignal.any([this.#ending.signal, signal]) : this.#ending.signal;
    const first = this.#load();
    this.ready = first.then(() => undefined);
    this.closed = first
      .then((at) => this.#follow(at))
      .catch((error: unknown) => {
        if (!this.#isClosed) throw error;
      });
    // Whoever waits for neither of them is not to get an error that nothing handles.
    this.ready.catch(() => undefined);
    this.closed.catch(() => undefined);
  }

  /** The number of records. */
  get size(): number {
    return this.#ttlMs === Infinity ? this.#records.size : [...this].length;
  }

  get(key: FoundKey): TopicRecord<V> | undefined {
    const found = this.#records.get(idOf(key));
    return found && this.#isKept(found) ? found : undefined;
  }

  has(key: FoundKey): boolean {
    return this.get(key) !== undefined;
  }

  /** The records, in no order. */
  *[Symbol.iterator](): Iterator<TopicRecord<V>> {
    for (const record of this.#records.values()) if (this.#isKept(record)) yield record;
  }

  /** Call back with each change from now on; what is returned ends that. A record that expires is no change. */
  subscribe(changed: (change: SyncChange<V>) => void): () => void {
    this.#subscribers.add(changed);
    return () => void this.#subscribers.delete(changed);
  }

  /** End it: what is there stays as it is. */
  close(): void {
    this.#isClosed = true;
    this.#ending.abort();
  }

  /** Whether the topic's `ttl` keeps the record, by this machine's clock. */
  #isKept({ timestampMs }: TopicRecord<V>): boolean {
    return (timestampMs ?? Infinity) + this.#ttlMs > Date.now();
  }

  async #follow(at: string): Promise<void> {
    const { prefix, conditions } = this.#options;
    const options = { ...(prefix ? { prefix } : {}), ...(conditions ? { conditions } : {}) };
    for await (const change of new Changes<V>(this.#topic, { ...options, lastEventId: at, signal: this.#signal })) {
      if (change.kind === "gap") void this.#reload();
      else if (change.kind === "absent") this.#apply(change.absent);
      else this.#apply(change.kind === "record" ? change.record : goneOf(change.record));
    }
  }

  /** Read another snapshot beside the stream; one that has begun before a gap is not what is wanted. */
  async #reload(): Promise<void> {
    const isLoading = this.#meanwhile !== undefined;
    // The next snapshot has what came before the gap. A topic that was created again has lower offsets, too.
    this.#meanwhile = new Map();
    this.#hasGap = true;
    if (isLoading) return;
    try {
      while (this.#hasGap) {
        this.#hasGap = false;
        await this.#load();
      }
    } catch (error) {
      this.#ending.abort(error);
    } finally {
      this.#meanwhile = undefined;
    }
  }

  /** Read the whole topic, and replace what is there. Returns the position of the whole in the stream. */
  async #load(): Promise<string> {
    const snapshot = await readSnapshot<V>(this.#topic, this.#query, this.#signal);
    if (this.#hasGap) return snapshot.at;
    const records = snapshot.records;
    for (const [id, change] of this.#meanwhile ?? []) applyTo(records, id, change);
    const before = this.#records;
    this.#records = records;
    this.#ttlMs = snapshot.ttlMs;
    for (const [id, record] of before) if (!records.has(id)) this.#notify(goneOf(record));
    const incarnation = snapshot.at.split("@")[1];
    const isOther = incarnation !== this.#incarnation;
    this.#incarnation = incarnation;
    for (const [id, record] of records) if (isOther || !isSame(record, before.get(id))) this.#notify(record);
    return snapshot.at;
  }

  #apply(change: SyncChange<V>): void {
    const id = idOf(change.key);
    this.#meanwhile?.set(id, change);
    if (applyTo(this.#records, id, change)) this.#notify(change);
  }

  #notify(change: SyncChange<V>): void {
    for (const changed of this.#subscribers) changed(change);
  }
}

/** Read a snapshot, in as many requests as it takes. */
async function readSnapshot<V>(topic: TopicScope, query: Query, signal: AbortSignal): Promise<Snapshot<V>> {
  const { retries } = topic.context.transport;
  let failures = 0;
  let snapshot = begun<V>();
  for (;;) {
    const { cursor } = snapshot;
    try {
      await readResponse(topic, { ...query, ...(cursor ? { cursor } : {}) }, snapshot, signal);
      return snapshot;
    } catch (error) {
      signal.throwIfAborted();
      if (snapshot.cursor !== cursor) failures = 0;
      if (error instanceof ProblemError && error.type === OUTDATED) snapshot = begun();
      else if (!retries.isTransient(error)) throw error;
      if (++failures >= retries.attempts) throw error;
      await pause(retries.waitS(error as KeylaneError, failures), signal);
    }
  }
}

const begun = <V>(): Snapshot<V> => ({ records: new Map(), at: "", ttlMs: Infinity, cursor: undefined });

/** Add one response to a snapshot, lane by lane. Throws Unreachable for one that was cut off. */
async function readResponse<V>(
  topic: TopicScope,
  query: Query,
  snapshot: Snapshot<V>,
  signal: AbortSignal,
): Promise<void> {
  const isFirst = snapshot.cursor === undefined;
  const request = { method: "GET", path: `/topics/${segment(topic.name)}/snapshot`, query, signal } as const;
  const bytes = topic.context.transport.listen({ ...request, headers: { Accept: NDJSON } }, NDJSON, SILENCE_S);
  let lane = new Map<string, SyncChange<V>>();
  for await (const line of linesOf(bytes)) {
    const document = parseDocument<Row & Mark>(line, topic.context.loads);
    if (document.key !== undefined) {
      const change = expectKeylane(() => parseRecord<V>(document, topic.name) ?? parseAbsence(document, topic.name));
      lane.set(idOf(change.key), change);
    } else if (document.problem) {
      // The next request may have another token.
      if (document.problem.status === 401) throw new Unreachable("the token expired while the snapshot was read");
      throw problemOf(document.problem.status, document.problem);
    } else if (document.begin && isFirst) {
      snapshot.at = document.begin.at;
      snapshot.ttlMs = document.begin.ttl_ms ?? Infinity;
    } else if (document.lane) {
      const { as_of_ms: asOfMs, cursor } = document.lane;
      for (const [id, change] of lane) {
        const isKept = !change.absent && (change.timestampMs ?? Infinity) + snapshot.ttlMs > asOfMs;
        if (isKept) snapshot.records.set(id, change);
      }
      snapshot.cursor = expectKeylane(() => need(cursor, "the cursor of a lane"));
      lane = new Map();
    } else if (document.end) {
      if (isFirst) snapshot.at = document.end.at ?? snapshot.at;
      return;
    }
  }
  throw new Unreachable(`the snapshot of topic "${topic.name}" was cut off`);
}

async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
}

/** Apply a change that is not older than what is there. Returns whether it changed anything. */
function applyTo<V>(records: Map<string, TopicRecord<V>>, id: string, change: SyncChange<V>): boolean {
  const present = records.get(id);
  if (present && isOlder(change, present)) return false;
  if (change.absent) return records.delete(id);
  records.set(id, change);
  return !isSame(change, present);
}

/** Whether a change was read before a record, as far as one partition's offsets say. */
function isOlder(change: SyncChange<unknown>, { position }: TopicRecord): boolean {
  if (!change.absent) {
    return change.position.partition === position.partition && change.position.offset < position.offset;
  }
  return change.watermark?.partition === position.partition && change.watermark.offset <= position.offset;
}

function isSame(record: TopicRecord, present: TopicRecord | undefined): boolean {
  // The timestamp, too: a topic that was created again begins at the same positions.
  return String(record.position) === String(present?.position) && record.timestampMs === present?.timestampMs;
}

function goneOf({ topic, key, watermark, ageMs }: TopicRecord): Absent {
  return { absent: true, topic, key, watermark, ageMs };
}

/** A key as the key of a Map: texts, bytes and JSON never meet. */
function idOf(key: FoundKey): string {
  if (typeof key === "string") return `"${key}`;
  return key instanceof Uint8Array ? `=${binaryText(key)}` : JSON.stringify(key);
}
