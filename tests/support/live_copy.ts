/** Keeps a live copy of a topic, and says what it has whenever it is asked by a line on the standard input. */

import { createInterface } from "node:readline";
import { Client, RetryPolicy } from "../../clients/typescript/src/index.ts";

const [url, name, prefix] = process.argv.slice(2) as [string, string, string];
const retries = new RetryPolicy({ attempts: 200, maxBackoffS: 0.5 });
const live = new Client(url, { retries }).topic(name).sync(prefix ? { prefix } : {});
live.closed.catch((error) => {
  process.stderr.write(String(error.stack));
  process.exit(1);
});
await live.ready;
/** What a subscriber comes to that applies each change. */
const heard = new Map([...live].map(({ key, value }) => [key, value]));
live.subscribe((change) => (change.absent ? heard.delete(change.key) : heard.set(change.key, change.value)));
for await (const _ of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify({ live: [...live].map(({ key, value }) => [key, value]), heard: [...heard] })}\n`);
}
live.close();
