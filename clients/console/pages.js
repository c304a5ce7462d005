/** Pages of a topic's records, one behind the other: a table with chosen columns, its export, and the way on. */

import { button, element, row } from "./dom.js";
import { exportBar } from "./download.js";
import { fieldChooser } from "./fields.js";
import { count } from "./format.js";
import { guarded } from "./problem.js";
import { recordTable } from "./recordtable.js";

export const ON_A_PAGE = "50";
const EXPORT_PAGE = 1000;

/**
 * Returns what shows the first page in `place`.
 *
 * `readPage(cursor, limit)`: the document of a page. `noun`: what a row is. `end`: what the last page says.
 * `empty(found)`: what one without rows says. `above(found)`: what is between its heading and the rows.
 * `table(caption, records)`: instead of the records with the chosen fields. `shown(caption)`: after each page.
 */
export function pager(topic, place, { readPage, limit, fields, noun, end, empty, above = () => "", table, shown = () => {} }) {
  let number = 0;
  async function page(cursor) {
    const found = await readPage(cursor, limit);
    number += 1;
    const bar = exportBar(topic, {
      shown: () => found.records,
      fields: () => fields,
      async *all() {
        for (let next = ""; next !== undefined; ) {
          const each = await readPage(next, EXPORT_PAGE);
          yield each.records;
          next = each.next;
        }
      },
    });
    const next = found.next && button("Next page", () => guarded(place, () => page(found.next)), { class: "main" });
    const caption = `Page ${number}: ${count(found.records.length)} ${found.records.length === 1 ? noun : `${noun}s`}`;
    const rows = () => table
      ? [bar, table(caption, found.records)]
      : [fieldChooser(found.records, fields, (chosen, name) => { fields = chosen; draw(name); }) ?? "", bar, recordTable(caption, topic, found.records, fields, false)];
    const draw = (focused) => {
      place.replaceChildren(
        element("h2", { tabindex: "-1" }, caption),
        above(found),
        ...(found.records.length ? rows() : [element("p", {}, empty(found))]),
        row(next || element("span", { class: "hint" }, end), number > 1 && button("First page", () => { number = 0; guarded(place, () => page("")); })),
      );
      if (focused) place.querySelector(`[data-field="${CSS.escape(focused)}"]`)?.focus();
    };
    draw();
    shown(caption);
    if (number > 1) place.querySelector("h2").focus();
  }
  return () => page("");
}
