/** Small charts in SVG. Each has a name for those who do not see it; its numbers stand beside it as text. */

import { drawn, element } from "./dom.js";
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

/** Round steps of an axis, about four. */
function ticks(low, high) {
  const raw = (high - low || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, index) => first + index * step);
}

/** Columns over time; `bars`: {start, value, final}. What may still change is pale. */
export function columns(bars, label, onPick) {
  const [width, height, left, bottom] = [900, 260, 52, 24];
  const known = bars.filter((each) => each.value !== null);
  const low = Math.min(0, ...known.map((each) => each.value));
  const high = Math.max(...known.map((each) => each.value), low + 1e-9);
  const at = (value) => 8 + (height - bottom - 8) * (1 - (value - low) / (high - low || 1));
  const step = (width - left) / Math.max(bars.length, 1);
  const labelled = Math.max(1, Math.ceil(bars.length / 8));
  return element(
    "div",
    { class: "chart" },
    drawn(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      ticks(low, high).map((value) => [
        drawn("path", { class: "grid", d: `M${left} ${at(value).toFixed(1)}H${width}` }),
        drawn("text", { x: left - 8, y: at(value) + 4, "text-anchor": "end" }, count(value)),
      ]),
      bars.map((each, index) =>
        each.value === null
          ? null
          : drawn(
              "rect",
              {
                class: each.final ? "column" : "column early",
                x: (left + index * step + step * 0.08).toFixed(2),
                width: Math.max(step * 0.84, 0.5).toFixed(2),
                y: Math.min(at(each.value), at(0)).toFixed(2),
                height: Math.max(Math.abs(at(each.value) - at(0)), 1).toFixed(2),
                on: onPick && { click: () => onPick(index) },
              },
              drawn("title", {}, `${day(each.start)}: ${count(each.value)}${each.final ? "" : " (may still change)"}`),
            ),
      ),
      bars.map((each, index) =>
        index % labelled || left + index * step + 90 > width + (index ? 0 : width) ? null : drawn("text", { x: left + index * step, y: height - 6 }, day(each.start)),
      ),
    ),
  );
}
