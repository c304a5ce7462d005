/** Days as columns, in SVG. The title of each column, and the name of the chart, say the numbers. */

import { drawn, element } from "./dom.js";

const [HEIGHT, LEFT, BOTTOM] = [240, 46, 24];
/** The room of a day's name, and the least of a day. */
const [NAME, LEAST] = [90, 2];
const day = (ms) => new Date(ms).toISOString().slice(0, 10);
const round = (value) => Math.round(value * 10) / 10;

/** `room`: the pixels that there are; with many days the chart is wider, and scrolls. */
export function columns(windows, column, label, room) {
  const days = windows.map((each) => ({ ...each, value: Number(each.values[column] ?? 0) }));
  const high = Math.max(...days.map((each) => each.value), 1);
  const low = Math.min(...days.map((each) => each.value), 0);
  const at = (value) => 8 + (HEIGHT - BOTTOM - 8) * (1 - (value - low) / (high - low));
  const width = Math.max(room, LEFT + days.length * LEAST);
  const step = Math.min((width - LEFT) / days.length, NAME);
  const every = Math.max(1, Math.ceil(NAME / step));
  const lines = [low, 0, high / 2, high].filter((value, index, all) => all.indexOf(value) === index);
  return element("div", { class: "chart", tabindex: "0", role: "region", "aria-label": "Chart" },
    drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label },
      lines.map((value) => [
        drawn("path", { class: "grid", d: `M${LEFT} ${at(value).toFixed(1)}H${width}` }),
        drawn("text", { x: LEFT - 8, y: at(value) + 4, "text-anchor": "end" }, String(Math.round(value))),
      ]),
      days.map((each, index) =>
        drawn("rect", {
          class: each.final ? "bar" : "bar early",
          x: (LEFT + index * step + step * 0.1).toFixed(2),
          width: Math.min(step * 0.8, 60).toFixed(2),
          y: Math.min(at(each.value), at(0)).toFixed(2),
          height: Math.max(Math.abs(at(each.value) - at(0)), 1).toFixed(2),
        }, drawn("title", {}, `${day(each.start)}: ${round(each.value)}`))),
      days.map((each, index) => (index % every || LEFT + index * step > width - NAME + 15 ? null : drawn("text", { x: (LEFT + index * step).toFixed(1), y: HEIGHT - 6 }, day(each.start))))));
}
