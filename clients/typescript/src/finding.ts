/** Records by the fields of their values: what is asked, page by page. */

import type { FoundPage, Position, TopicRecord } from "./answers.ts";
import type { Conditions } from "./conditions.ts";
import { conditionsQuery } from "./conditions.ts";
import type { components } from "./openapi.ts";
import type { Row } from "./parsing.ts";
import { expectKeylane, need, parseDocument, parseRecord, parseWatermarks } from "./parsing.ts";
import { InvalidArgument } from "./problems.ts";
import { positionHeaders, readOwnWrites } from "./reads.ts";
import type { TopicScope } from "./scope.ts";
import { termsQuery } from "./scope.ts";
import type { Key, Query } from "./wire.ts";
import { keyBounds, segment } from "./wire.ts";

const MOST_ON_A_PAGE = 1000;

interface Asked {
  readonly conditions: Conditions;
  readonly prefix?: Key;
  readonly order?: string;
  readonly limit?: number;
  readonly pageSize?: number;
  readonly position?: Position;
  readonly waitS?: number | undefined;
}

/** Records of a topic that meet all conditions: `for await (const record of topic.find(...))` reads all pages. */
export class Find<V = unknown> implements AsyncIterable<TopicRecord<V>> {
  readonly #topic: TopicScope;
  readonly #asked: Asked;

  constructor(topic: TopicScope, asked: Asked) {
    this.#topic = topic;
    this.#asked = asked;
  }

  /** It ordered by a field, from its highest value on as in `-placed`; records without a value are not found. */
  orderBy(field: string): Find<V> {
    return this.#with({ order: field });
  }

  /** It for keys that begin with this. With `partition_by`, one lane may have all of them. */
  prefix(key: Key): Find<V> {
    return this.#with({ prefix: key });
  }

  /** It with so many records at most; `count` counts all. */
  limit(most: number): Find<V> {
    return this.#with({ limit: atLeastOne(most) });
  }

  /** It with so many records in a page, 1,000 at most; else 100, or as many as `limit` says. */
  pageSize(records: number): Find<V> {
    return this.#with({ pageSize: atLeastOne(records) });
  }

  /** It for a state that has this position: it is waited for `waitS` seconds (5 by default, 20 at most). */
  minPosition(position: Position, { waitS }: { waitS?: number } = {}): Find<V> {
    return this.#with({ position, waitS });
  }

  /**
   * Read the records, a page when it is needed.
   *
   * A record that is written meanwhile may come again, or not at all, if its place in the order changes.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<TopicRecord<V>, void> {
    let left = this.#asked.limit ?? Infinity;
    let cursor: string | undefined;
    do {
      const page = await this.#readPage(cursor, left);
      yield* page.records.slice(0, left);
      left -= page.records.length;
      cursor = page.next;
    } while (cursor !== undefined && left > 0);
  }

  /**
   * Read one page: the first one, or the one after the page whose `next` is the cursor.
   *
   * It may have fewer records than its size, or none, and a `next`: one request looks at 5,000 entries.
   */
  page(cursor?: string): Promise<FoundPage<V>> {
    return this.#readPage(cursor, this.#asked.limit ?? Infinity);
  }

  /** Count the records, in as many requests as it takes. */
  async count(): Promise<number> {
    let total = 0;
    let cursor: string | undefined;
    do {
      const document = await this.#ask({ count: "true" }, cursor);
      total += expectKeylane(() => need(document.count, "count"));
      cursor = document.next;
    } while (cursor !== undefined);
    return total;
  }

  async #readPage(cursor: string | undefined, left: number): Promise<FoundPage<V>> {
    const size = Math.min(this.#asked.pageSize ?? left, left, MOST_ON_A_PAGE);
    const isGiven = this.#asked.pageSize !== undefined || left !== Infinity;
    const document = await this.#ask(isGiven ? { limit: String(size) } : {}, cursor);
    return expectKeylane(() => ({
      records: need(document.records, "records").map((row) =>
        need(parseRecord<V>(row as Row, this.#topic.name), "the record of a key that was found"),
      ),
      next: document.next,
      scanned: need(document.scanned, "scanned"),
      watermarks: parseWatermarks(document),
      ageMs: document.age_ms,
    }));
  }

  async #ask(query: Query, cursor: string | undefined): Promise<components["schemas"]["Found"]> {
    const { conditions, prefix, order, position, waitS } = this.#asked;
    const request = {
      method: "GET",
      path: `/topics/${segment(this.#topic.name)}/find`,
      query: {
        ...conditionsQuery(conditions),
        ...query,
        ...termsQuery(this.#topic),
        ...keyBounds({ prefix }),
        ...(order === undefined ? {} : { order }),
        ...(cursor === undefined ? {} : { cursor }),
      },
      headers: positionHeaders(position, waitS),
    } as const;
    // Any write may make a record one that is found, or one that is not.
    const { body } = await readOwnWrites(this.#topic, request, () => true);
    return parseDocument(body, this.#topic.context.loads);
  }

  #with(asked: Partial<Asked>): Find<V> {
    return new Find(this.#topic, { ...this.#asked, ...asked });
  }
}

function atLeastOne(number: number): number {
  if (!(number >= 1)) throw new InvalidArgument(`${number} records are none: 1 at least`);
  return number;
}
