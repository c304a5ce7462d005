/** Pages that follow cursors: ranges of keys, histories, windows. */

import type { FoundKey, HistoryEntry, TopicRecord } from "./answers.ts";
import { binaryText } from "./bytes.ts";
import type { components } from "./openapi.ts";
import type { Row } from "./parsing.ts";
import { expectKeylane, need, parseDocument, parseHistoryEntry, parseKey, parseRecord } from "./parsing.ts";
import { HistoryTooShort } from "./problems.ts";
import { readOwnWrites } from "./reads.ts";
import type { TopicScope } from "./scope.ts";
import { termsQuery, termsQueryAsOf } from "./scope.ts";
import type { ApiRequest, ApiResponse } from "./transport.ts";
import type { Key, Moment, Query } from "./wire.ts";
import { encodeKey, keyBounds, keyPath, segment, timeBounds } from "./wire.ts";

type Documents = components["schemas"];
/** What pages have in common. */
type Paged = Pick<Documents["Page"], "watermarks" | "age_ms" | "next">;

/** Keys that begin with `prefix`, or those from `start` on and below `stop`. */
export interface KeyRange {
  readonly prefix?: Key;
  readonly start?: Key;
  readonly stop?: Key;
}

export interface PageSize {
  /** The number of records in a page. */
  readonly pageSize?: number;
}

export interface TimeRange extends PageSize {
  /** The first moment. */
  readonly start?: Moment;
  /** The moment before which it ends. */
  readonly stop?: Moment;
}

export const limitQuery = ({ pageSize }: PageSize): Query => (pageSize === undefined ? {} : { limit: String(pageSize) });

/** Give the rows of all pages, each page when it is needed. `send`: sends a request for a page. */
export async function* readPages<R, T>(
  request: ApiRequest,
  send: (request: ApiRequest) => Promise<ApiResponse>,
  rows: { name: string; parse: (row: R, page: Paged) => T; loads?: (text: string) => unknown },
): AsyncGenerator<T, void> {
  let query = request.query ?? {};
  for (;;) {
    const { body } = await send({ ...request, query });
    const page = parseDocument<Paged>(body, rows.loads);
    yield* expectKeylane(() => {
      const found = need((page as unknown as { [name: string]: R[] })[rows.name], rows.name);
      return found.map((row) => rows.parse(row, page));
    });
    if (page.next === undefined) return;
    query = { ...query, cursor: page.next };
  }
}

/** Read the records of a range. */
export function scan<V>(topic: TopicScope, range: KeyRange & PageSize): AsyncGenerator<TopicRecord<V>, void> {
  return rangePages(topic, range, {}, (row) => {
    if (row.history_too_short) {
      const detail = `the history of key ${JSON.stringify(row.key)} is complete from since_ms on`;
      throw new HistoryTooShort(410, { type: "history-too-short", detail, since_ms: row.since_ms });
    }
    return need(parseRecord<V>(row, topic.name), "the record of a key in a range");
  });
}

/** Read the keys of a range. */
export function scanKeys(topic: TopicScope, range: KeyRange & PageSize): AsyncGenerator<FoundKey, void> {
  return rangePages(topic, range, { keys_only: "true" }, parseKey);
}

function rangePages<T>(
  topic: TopicScope,
  range: KeyRange & PageSize,
  more: Query,
  parse: (row: Row) => T,
): AsyncGenerator<T, void> {
  const bounds = keyBounds({ prefix: range.prefix, from: range.start, to: range.stop });
  const query = { ...more, ...bounds, ...termsQueryAsOf(topic), ...limitQuery(range) };
  const request: ApiRequest = { method: "GET", path: `/topics/${segment(topic.name)}/keys`, query };
  const [prefix, start, stop] = [range.prefix, range.start, range.stop].map((key) =>
    key?.length ? binaryText(encodeKey(key)) : "",
  ) as [string, string, string];
  const isWanted = (key: string) => key.startsWith(prefix) && key >= start && (!stop || key < stop);
  const rows = { name: "records", parse, loads: topic.context.loads };
  return readPages<Row, T>(request, (page) => readOwnWrites(topic, page, isWanted), rows);
}

/** Read a key's history. */
export function history<V>(topic: TopicScope, key: Key, range: TimeRange): AsyncGenerator<HistoryEntry<V>, void> {
  const [path, query] = keyPath(topic.name, key);
  const text = binaryText(encodeKey(key));
  return readPages<Documents["Entry"], HistoryEntry<V>>(
    {
      method: "GET",
      path: `${path}/history`,
      query: { ...query, ...termsQuery(topic), ...timeBounds(range.start, range.stop), ...limitQuery(range) },
    },
    (page) => readOwnWrites(topic, page, (each) => each === text),
    { name: "records", parse: parseHistoryEntry<V>, loads: topic.context.loads },
  );
}
