/** Keylane's client: Kafka topics, queried over HTTPS. */

export { Position } from "./answers.ts";
export type {
  Absent,
  Change,
  FoundKey,
  FoundPage,
  Gap,
  HistoryEntry,
  JsonValue,
  RecordHeader,
  TopicRecord,
  ValueFormat,
  Watermarks,
  Window,
  WriteFailed,
  Written,
} from "./answers.ts";
export { Client } from "./client.ts";
export type { Session, View, WindowsOptions } from "./client.ts";
export { allOf, between, startingWith } from "./conditions.ts";
export type { Conditions, FieldCondition, FieldValue, Wanted } from "./conditions.ts";
export { KeylaneError, ProblemError } from "./errors.ts";
export type { ProblemDocument } from "./errors.ts";
export type { Find } from "./finding.ts";
export type { Changes, ChangesOptions, StreamOptions } from "./following.ts";
export { ApiKey, Bearer, NO_RETRIES, RetryPolicy } from "./options.ts";
export type { ClientOptions, Credentials } from "./options.ts";
export type { KeyRange, PageSize, TimeRange } from "./pages.ts";
export * from "./problems.ts";
export type { KeyRead } from "./reads.ts";
export type { Terms } from "./scope.ts";
export type { LiveTopic, SyncChange, SyncOptions } from "./sync.ts";
export type { Topic } from "./topic.ts";
export type { AskedKey, Key, Moment } from "./wire.ts";
export type { NewRecord, PutOptions, RecordHeaders, WriteOptions } from "./writes.ts";
