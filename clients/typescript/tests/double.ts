/** A `fetch` that answers by a list, and records what it was asked. */

export interface Asked {
  readonly method: string;
  readonly url: URL;
  readonly headers: Headers;
  readonly body: BodyInit | null | undefined;
}

type Answer = Response | Error | ((asked: Asked, signal: AbortSignal) => Response | Promise<Response>);

export class Double {
  readonly asked: Asked[] = [];
  readonly #answers: Answer[];

  constructor(...answers: Answer[]) {
    this.#answers = answers;
  }

  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const asked = { method: init.method!, url: new URL(url), headers: new Headers(init.headers), body: init.body };
    this.asked.push(asked);
    init.signal!.throwIfAborted();
    const answer = this.#answers.shift();
    if (answer === undefined) throw new Error(`nothing is to be asked any more: ${init.method} ${url}`);
    if (answer instanceof Error) throw answer;
    return answer instanceof Response ? answer : answer(asked, init.signal!);
  };

  /** The header of each request, null where it had none. */
  headersNamed(name: string): (string | null)[] {
    return this.asked.map(({ headers }) => headers.get(name));
  }
}

export function record(value: unknown, position: string, more: { [name: string]: string } = {}): Response {
  return new Response(JSON.stringify(value), {
    headers: {
      "Content-Type": "application/json",
      "Keylane-Position": position,
      "Keylane-Watermark": position.replace(/\d+$/, (offset) => String(Number(offset) + 1)),
      "Keylane-Age-Ms": "10",
      ETag: `"${position.replace(":", "-")}@17"`,
      ...more,
    },
  });
}

export function problem(status: number, type: string, more: { [name: string]: string | boolean } = {}, headers = {}): Response {
  const document = { type: `urn:keylane:problem:${type}`, title: "t", status, detail: "d", instance: "i", ...more };
  return new Response(JSON.stringify(document), { status, headers });
}

export const document = (body: unknown): Response => new Response(JSON.stringify(body));

/** A stream of events: each text is one chunk of bytes. `isOpen`: it does not end until it is aborted. */
export function events(chunks: readonly (string | Uint8Array)[], isOpen = false): Answer {
  return stream(chunks, "text/event-stream", isOpen);
}

/** A snapshot: each document is one line. */
export function snapshot(...lines: readonly unknown[]): Answer {
  return stream(lines.map((line) => `${JSON.stringify(line)}\n`), "application/x-ndjson", false);
}

function stream(chunks: readonly (string | Uint8Array)[], type: string, isOpen: boolean): Answer {
  return (_, signal) => {
    const left = [...chunks];
    const body = new ReadableStream({
      start(controller) {
        signal.addEventListener("abort", () => controller.error(signal.reason));
      },
      pull(controller) {
        const chunk = left.shift();
        if (chunk !== undefined) controller.enqueue(typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk);
        else if (!isOpen) controller.close();
      },
    });
    return new Response(body, { headers: { "Content-Type": type } });
  };
}

export function event(name: string, id: string, data: unknown): string {
  return `id: ${id}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}

export function recordEvent(value: unknown, position: string): string {
  const [partition, offset] = position.split(":").map(Number);
  const data = { topic: "t", key: "k", key_format: "text", partition, offset, position, timestamp: 1 };
  return event("record", `${position}@17`, { ...data, value, value_format: "json", watermark: position, age_ms: 5 });
}
