/** What openapi-generator's typescript-fetch has made: a put, a get, a page and a find. Prints what was found. */

import { Configuration, ReadTheStateApi, WriteToKafkaApi } from "./index.ts";

const [basePath, key] = process.argv.slice(2) as [string, string];
const configuration = new Configuration({ basePath });
const [reads, writes] = [new ReadTheStateApi(configuration), new WriteToKafkaApi(configuration)];
const topic = "bookings";

const body = new Blob([JSON.stringify({ to: "Zug", fare: 12.5 })], { type: "application/json" });
const written = await writes.putKey({ topic, key, body });
const record = await reads.getKey({ topic, key, envelope: true, keylaneMinPosition: written.position, prefer: "wait=20" });
const page = await reads.getKeys({ topic, prefix: key, limit: 5 });
const found = await reads.findRecords({ topic, prefix: key, order: "-fare", limit: 5 });
const keysOf = (records: { key: unknown }[]) => records.map((each) => each.key);
console.log(JSON.stringify([record.value, keysOf(page.records), keysOf(found.records)]));
