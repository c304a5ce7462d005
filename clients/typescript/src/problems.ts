/**
 * Errors that the client throws, one class for each of the Python client's.
 *
 * Made by `python -m keylane_build.typescript_problems`: do not edit.
 */

import { KeylaneError, ProblemError } from "./errors.ts";

/** No answer came: the address, the network, TLS, a timeout, or a proxy that says so. */
export class Unreachable extends KeylaneError {
  static {
    this.prototype.name = "Unreachable";
  }
}

/** The answer is not Keylane's: the URL is another server's, or the server has another version. */
export class InvalidAnswer extends KeylaneError {
  static {
    this.prototype.name = "InvalidAnswer";
  }
}

/** What was given cannot be sent: an empty key, NaN, undefined, what is not the URL of an API. */
export class InvalidArgument extends KeylaneError {
  static {
    this.prototype.name = "InvalidArgument";
  }
}

/** A mapping that `sync` returned is not kept current any more; `__cause__` says why. */
export class SyncFailed extends KeylaneError {
  static {
    this.prototype.name = "SyncFailed";
  }
}

/** The request is wrong: the same one fails again. */
export class RequestRefused extends ProblemError {
  static {
    this.prototype.name = "RequestRefused";
  }
}

/** The caller is not known, or not allowed to do this. */
export class AccessDenied extends ProblemError {
  static {
    this.prototype.name = "AccessDenied";
  }
}

/** There is no such thing. */
export class NotFound extends ProblemError {
  static {
    this.prototype.name = "NotFound";
  }
}

/** The topic has no record under the key. */
export class KeyAbsent extends NotFound {
  static {
    this.prototype.name = "KeyAbsent";
  }
}

/** Reads: the topic has no state. Writes: Kafka has no such topic. */
export class UnknownTopic extends NotFound {
  static {
    this.prototype.name = "UnknownTopic";
  }
}

/** No view of this name is kept. */
export class UnknownView extends NotFound {
  static {
    this.prototype.name = "UnknownView";
  }
}

/** The job cannot open the view: the detail says why. */
export class ViewNotOpened extends UnknownView {
  static {
    this.prototype.name = "ViewNotOpened";
  }
}

/** The topic keeps no index or no history, or the value has no fields. */
export class NotKept extends ProblemError {
  static {
    this.prototype.name = "NotKept";
  }
}

/** The topic was built again, or Kafka removed records that were needed, while a snapshot was read. */
export class SnapshotOutdated extends ProblemError {
  static {
    this.prototype.name = "SnapshotOutdated";
  }
}

/** The history does not reach back that far; `problem.since_ms` says how far it does. */
export class HistoryTooShort extends ProblemError {
  static {
    this.prototype.name = "HistoryTooShort";
  }
}

/** The record is another one than `ifMatch` demands. */
export class PreconditionFailed extends ProblemError {
  static {
    this.prototype.name = "PreconditionFailed";
  }
}

/** The state did not reach the position in time. */
export class PositionNotReached extends ProblemError {
  static {
    this.prototype.name = "PositionNotReached";
  }
}

/** The value is left in Kafka because of its size, or does not match the topic's format. */
export class ValueNotReadable extends ProblemError {
  static {
    this.prototype.name = "ValueNotReadable";
  }
}

/** A rate limit of the topic, the caller or the stage is reached. */
export class RateLimited extends ProblemError {
  static {
    this.prototype.name = "RateLimited";
  }
}

/** The service cannot answer now. A write may have happened. */
export class Unavailable extends ProblemError {
  static {
    this.prototype.name = "Unavailable";
  }
}

/** The service, or Kafka behind it, failed. */
export class ServiceFailed extends ProblemError {
  static {
    this.prototype.name = "ServiceFailed";
  }
}

export const ERRORS_BY_TYPE: ReadonlyMap<string, typeof ProblemError> = new Map<string, typeof ProblemError>([
  ["key-absent", KeyAbsent],
  ["unknown-topic", UnknownTopic],
  ["unknown-view", UnknownView],
  ["view-not-opened", ViewNotOpened],
  ["position-not-reached", PositionNotReached],
  ["value-left-in-kafka", ValueNotReadable],
  ["value-not-decodable", ValueNotReadable],
  ["request-in-progress", Unavailable],
  ["state-too-old", Unavailable],
  ["snapshot-outdated", SnapshotOutdated],
]);

export const ERRORS_BY_STATUS: ReadonlyMap<number, typeof ProblemError> = new Map<number, typeof ProblemError>([
  [401, AccessDenied],
  [403, AccessDenied],
  [404, NotFound],
  [409, NotKept],
  [410, HistoryTooShort],
  [412, PreconditionFailed],
  [429, RateLimited],
  [503, Unavailable],
  [504, Unavailable],
]);

/** The types of problems that the service answers with. */
export type ProblemType =
  | "answer-too-large"
  | "bad-request"
  | "body-too-large"
  | "corrupt-state"
  | "empty-key"
  | "foreign-origin"
  | "history-too-short"
  | "idempotency-key-reused"
  | "internal"
  | "issuer-unavailable"
  | "key-absent"
  | "key-too-large"
  | "key-unreadable"
  | "lane-building"
  | "log-refused"
  | "log-unavailable"
  | "misconfigured"
  | "no-fields"
  | "no-history"
  | "no-index"
  | "no-json-object"
  | "not-acceptable"
  | "not-found"
  | "not-in-kafka"
  | "not-kept"
  | "not-streamed"
  | "offset-out-of-range"
  | "outside-scope"
  | "position-not-reached"
  | "precondition-failed"
  | "produce-failed"
  | "queue-unavailable"
  | "rate-limited"
  | "registry-unavailable"
  | "request-in-progress"
  | "scope-too-wide"
  | "settings-unavailable"
  | "snapshot-outdated"
  | "state-too-old"
  | "state-unavailable"
  | "topic-not-served"
  | "unavailable"
  | "unknown-cluster"
  | "unknown-partition"
  | "unknown-route"
  | "unknown-topic"
  | "unknown-view"
  | "unsupported-encoding"
  | "unsupported-media-type"
  | "value-invalid"
  | "value-left-in-kafka"
  | "value-not-decodable"
  | "value-too-large"
  | "view-not-opened"
  | "wrong-method";
