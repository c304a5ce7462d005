/** Server-Sent Events (WHATWG HTML, 9.2) from bytes as they come. Comments are left out. */

/** One event. `data` is empty for one that says an id alone. */
export interface ServerEvent {
  readonly name: string;
  readonly id: string;
  readonly data: string;
}

export class EventParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #fields = new Map<string, string[]>();

  /** The events that end in this chunk. */
  feed(chunk: Uint8Array): ServerEvent[] {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop()!;
    return lines.flatMap((line) => this.#read(line.replace(/\r$/, "")));
  }

  #read(line: string): ServerEvent[] {
    const fields = this.#fields;
    if (line) {
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line)!;
      fields.set(name!, [...(fields.get(name!) ?? []), value!]);
      return [];
    }
    this.#fields = new Map();
    const [id, data] = [fields.get("id"), fields.get("data")];
    if (!id && !data) return [];
    return [{ name: fields.get("event")?.at(-1) ?? "message", id: id?.at(-1) ?? "", data: data?.join("\n") ?? "" }];
  }
}
