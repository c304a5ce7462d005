/**
 * Code of a user of the package, which nothing runs: the compiler checks its types, strictly.
 *
 * A wrong call has an expected error: an error that is not there is one, too.
 */

import { Bearer, Client, KeyAbsent, Position, RateLimited, allOf, between } from "keylane-client";
import type { Absent, Change, FoundPage, HistoryEntry, Key, TopicRecord, Window, WriteFailed, Written } from "keylane-client";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
/** The value is of this type, neither narrower nor wider. */
function is<Wanted>() {
  return <Given>(_: Given, ..._same: Same<Given, Wanted> extends true ? [] : [never]): void => undefined;
}

interface Order {
  state: string;
  amount: number;
}

export async function use(): Promise<void> {
  const keylane = new Client("http://localhost:8080", { auth: new Bearer(() => "token"), timeoutS: 5 });
  const orders = keylane.session().topic<Order>("orders");

  is<TopicRecord<Order>>()(await orders.read("o-1"));
  is<TopicRecord<Order> | undefined>()(await orders.get({ region: "eu", number: 7 }, { minPosition: new Position(1, 2) }));
  is<Map<Key, TopicRecord<Order> | undefined>>()(await orders.getMany(["o-1", new Uint8Array([255]), 7], { atomic: true }));
  is<boolean>()(await orders.contains("o-1"));
  is<Written>()(await orders.put("o-1", { state: "paid", amount: 2 }, { headers: { source: "web" }, schema: "latest" }));
  is<Written>()(await orders.delete("o-1", { idempotencyKey: "a" }));
  is<number>()(await orders.count());
  for (const result of await orders.push([{ key: "o-1", value: null }])) {
    is<Written | WriteFailed>()(result);
    if (!result.isWritten) is<boolean>()(result.isRetriable);
  }
  for await (const record of orders.reading({ fields: ["state"] }).scan({ prefix: "o-" })) is<Order>()(record.value);
  for await (const entry of orders.history("o-1", { start: new Date() })) is<HistoryEntry<Order>>()(entry);
  for await (const change of orders.watch("o-1")) {
    is<TopicRecord<Order> | Absent>()(change);
    if (!change.absent) is<string>()(change.value.state);
  }
  for await (const change of orders.changes({ conditions: { state: "paid" } })) {
    is<Change<Order>>()(change);
    if (change.kind === "left") is<number>()(change.record.value.amount);
  }
  const found = orders.find({ state: "paid", amount: between(1, undefined, { below: 5 }), tags: allOf("a", "b") });
  is<FoundPage<Order>>()(await found.orderBy("-amount").limit(5).page());
  for await (const record of found) is<TopicRecord<Order>>()(record);
  for await (const window of keylane.view("sums").windows("o-1", { final: true })) is<Window>()(window);

  const unknown = keylane.topic("anything");
  is<unknown>()((await unknown.read("a")).value);

  // @ts-expect-error a value of another type
  await orders.put("o-1", { state: 1 });
  // @ts-expect-error no such option
  await orders.get("o-1", { minimum: 1 });
  // @ts-expect-error a list is no condition
  orders.find({ state: ["a"] });
  // @ts-expect-error sessions have no sessions
  keylane.session().session();
  // @ts-expect-error a record does not change
  (await orders.read("o-1")).value = { state: "", amount: 0 };
}

export function explain(error: unknown): string {
  if (error instanceof KeyAbsent) return error.detail;
  if (error instanceof RateLimited) return `again in ${error.retryAfterS ?? 1} s`;
  return String(error);
}
