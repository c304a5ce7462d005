/** What all errors of the client have in common. `problems.ts` has those that the service answers with. */

import type { ProblemType } from "./problems.ts";

const PREFIX = "urn:keylane:problem:";

/** A problem document (RFC 9457). Some types have members of their own. */
export interface ProblemDocument {
  readonly type?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly message?: string;
  readonly code?: string;
  readonly parameter?: string;
  readonly instance?: string;
  readonly uncertain?: boolean;
  readonly [member: string]: unknown;
}

/** Base of all errors of the client. Its message is for people, and says what to do where that is known. */
export class KeylaneError extends Error {
  static {
    this.prototype.name = "KeylaneError";
  }
}

/** The service refused the request. `type` is the problem's name without its prefix: programs compare this one. */
export class ProblemError extends KeylaneError {
  readonly status: number;
  readonly problem: ProblemDocument;
  readonly headers: Headers;
  readonly type: ProblemType | (string & {});
  readonly title: string;
  readonly detail: string;
  /** How long to wait before the request is sent again; undefined where the service named no time. */
  readonly retryAfterS: number | undefined;

  static {
    this.prototype.name = "ProblemError";
  }

  constructor(status: number, problem: ProblemDocument, headers = new Headers()) {
    const type = problemType(problem);
    const title = problem.title ?? "";
    const detail = problem.detail || problem.message || "";
    super(`${status} ${type}: ${detail || title || "no reason was given"}`);
    this.status = status;
    this.problem = problem;
    this.headers = headers;
    this.type = type;
    this.title = title;
    this.detail = detail;
    this.retryAfterS = parseRetryAfterS(headers.get("retry-after"));
  }

  /** The id of the request, which the service's log has too. */
  get instance(): string | undefined {
    return this.problem.instance ?? this.headers.get("x-amzn-requestid") ?? undefined;
  }

  /** The part of the request at fault. */
  get parameter(): string | undefined {
    return this.problem.parameter;
  }

  /** Whether the record may have been written in spite of the error. */
  get isUncertain(): boolean {
    return this.problem.uncertain === true;
  }

  /** Kafka's name of the error. */
  get code(): string | undefined {
    return this.problem.code;
  }
}

export function problemType(problem: ProblemDocument): string {
  const type = problem.type ?? "";
  return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : type;
}

/** The seconds of `Retry-After` (RFC 9110, 10.2.3); undefined where it is neither a number nor a date. */
export function parseRetryAfterS(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header);
  const moment = Date.parse(header);
  return Number.isNaN(moment) ? undefined : Math.max(0, (moment - Date.now()) / 1000);
}
