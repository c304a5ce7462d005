/** What a session wrote. */

import type { Watermarks } from "./answers.ts";
import { Position } from "./answers.ts";
import { binaryText } from "./bytes.ts";
import type { Key } from "./wire.ts";
import { encodeKey } from "./wire.ts";

/** The last position of each key that a session wrote: one entry for each key, for the session's life. */
export class Ledger {
  readonly #positions = new Map<string, Map<string, { key: Key; position: Position }>>();

  /** Remember a write. A later one in the same partition replaces it, and so does one in another. */
  note(topic: string, key: Key, position: Position): void {
    const written = this.#positions.get(topic) ?? new Map<string, { key: Key; position: Position }>();
    this.#positions.set(topic, written);
    const known = written.get(binaryText(encodeKey(key)))?.position;
    if (!known || known.partition !== position.partition || known.offset < position.offset) {
      written.set(binaryText(encodeKey(key)), { key, position });
    }
  }

  /** The position that a read of the key must wait for. */
  positionOf(topic: string, key: Key): Position | undefined {
    return this.#positions.get(topic)?.get(binaryText(encodeKey(key)))?.position;
  }

  /**
   * The writes of wanted keys that an answer with these watermarks lacks, or may lack.
   *
   * One for each partition, the last: a read that waits for it has waited for those before it. `isWanted` gets a
   * key's bytes as `binaryText`.
   */
  missing(topic: string, isWanted: (key: string) => boolean, watermarks: Watermarks): [Key, Position][] {
    const last = new Map<number, [Key, Position]>();
    for (const [text, { key, position }] of this.#positions.get(topic) ?? []) {
      const { partition, offset } = position;
      const isLater = (last.get(partition)?.[1].offset ?? -1) < offset;
      if (isLater && (watermarks.get(partition) ?? 0) <= offset && isWanted(text)) last.set(partition, [key, position]);
    }
    return [...last.values()];
  }
}
