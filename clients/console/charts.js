/** Small charts in SVG. Each has a name for those who do not see it; its numbers stand beside it as text. */

import { drawn, element, scrolling } from "./dom.js";
import { count, day } from "./format.js";

export function sparkline(values, label) {
  const [width, height] = [120, 32];
  const known = values.filter((each) => each !== null);
  const top = Math.max(...known, 1e-9);
  const step = width / Math.max(values.length - 1, 1);
  const points = values.map((each, index) => [index * step, height - 2 - ((each ?? 0) / top) * (height - 5)].map((at) => at.toFixed(1)).join(" "));
  const line = values.length > 1 ? `M${points.join("L")}` : "";
  return drawn(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    line && drawn("path", { class: "area", d: `${line}L${width} ${height}L0 ${height}Z` }),
    line && drawn("path", { class: "line", d: line }),
    drawn("path", { class: "base", d: `M0 ${height - 0.5}H${width}` }),
  );
}

/** A name with the number that it has now, and how that was; `unit`: the words behind it in the chart's name. */
export function metric(name, value, values, unit) {
  return element("div", { class: "metric" },
    element("span", { class: "name" }, name),
    element("span", { class: "number" }, value),
    sparkline(values, `${name} of the last ${values.length} samples${unit}, now ${value}`));
}

/** Round steps of an axis, about four. */
function ticks(low, high) {
  const raw = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, index) => first + index * step);
}

/** About as wide as a character of a label; no browser is asked for it. */
const CHARACTER = 6.9;
const widest = (texts) => Math.max(...texts.map((each) => each.length), 1) * CHARACTER;

/**
 * Columns over time; `bars`: {start, value, final}. What may still change is pale. `room`: the pixels that there are;
 * the chart is as wide, or scrolls if its columns would be too thin.
 */
export function columns(bars, label, room = 900) {
  const [height, bottom, top] = [260, 26, 10];
  const known = bars.filter((each) => each.value !== null);
  const low = Math.min(0, ...known.map((each) => each.value));
  const high = Math.max(...known.map((each) => each.value), low + 1e-9);
  const lines = ticks(low, high);
  const left = Math.ceil(widest(lines.map(count))) + 12;
  const days = bars.map((each) => day(each.start));
  const width = Math.max(Math.round(room), left + Math.ceil(bars.length * 2));
  const at = (value) => top + (height - bottom - top) * (1 - (value - low) / (high - low || 1));
  const step = (width - left) / Math.max(bars.length, 1);
  // As many labels as have room beside each other, and none that the edge would cut.
  const labelWidth = widest(days) + 14;
  const labelled = Math.max(1, Math.ceil(labelWidth / step));
  const isLabelled = (index) => index % labelled === 0 && (index === 0 || left + index * step + labelWidth - 14 <= width);
  const column = (each, index) =>
    drawn(
      "rect",
      {
        class: each.final ? "column" : "column early",
        x: (left + index * step + step * 0.08).toFixed(2),
        width: Math.max(Math.min(step * 0.84, 64), 0.5).toFixed(2),
        y: Math.min(at(each.value), at(0)).toFixed(2),
        height: Math.max(Math.abs(at(each.value) - at(0)), 1).toFixed(2),
      },
      drawn("title", {}, `${day(each.start)}: ${count(each.value)}${each.final ? "" : " (may still change)"}`),
    );
  return scrolling(
    "Chart",
    { class: "chart" },
    drawn(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
      lines.map((value) => [
        drawn("path", { class: "grid", d: `M${left} ${at(value).toFixed(1)}H${width}` }),
        drawn("text", { x: left - 8, y: at(value) + 4, "text-anchor": "end" }, count(value)),
      ]),
      bars.map((each, index) => (each.value === null ? null : column(each, index))),
      days.map((text, index) => (isLabelled(index) ? drawn("text", { class: "when-label", x: (left + index * step).toFixed(1), y: height - 6 }, text) : null)),
    ),
  );
}
