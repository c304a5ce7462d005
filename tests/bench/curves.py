"""Draws curves as SVG, in the style of docs/images, for light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 780, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 84, 52
LABEL_PX = 40
"""The least distance of two labels of the x axis."""
COLOURS = (("#0969da", "#4493f8"), ("#1a7f37", "#3fb950"), ("#9a6700", "#d29922"), ("#8250df", "#ab7df8"))
DASHES = ("none", "7 4", "2 4", "10 4 2 4")
"""Lines differ without colours, too."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: x is logarithmic, y begins at 0. `series`: points by the name of their line.

    `over_time`: x is linear and begins at 0, and points have no dots, because they are many.
    """

    y_title: str
    x_title: str
    series: Mapping[str, Points]
    over_time: bool = False


def draw(title: str, panels: Sequence[Panel]) -> str:
    """Return an SVG document with the panels side by side. Raises ValueError without points."""
    if not all(any(panel.series.values()) for panel in panels):
        raise ValueError(f"{title}: there are no points")
    width = WIDTH / len(panels)
    drawn = "\n".join(_panel(panel, number * width, width) for number, panel in enumerate(panels))
    name = escape(title, {'"': "&quot;"})
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" \
role="img" aria-label="{name}">
  <title>{name}</title>
  <style>
    text {{ font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }}
    .b {{ font-weight: 600; font-size: 14px }}
    .m {{ fill: #59636e }}
    .c {{ text-anchor: middle }}
    .e {{ text-anchor: end }}
    .bg {{ fill: #ffffff; stroke: #d1d9e0 }}
    .grid {{ stroke: #d1d9e0 }}
    .s {{ fill: none; stroke-width: 2 }}
{_styles(0)}
    @media (prefers-color-scheme: dark) {{
      text {{ fill: #e6edf3 }}
      .m {{ fill: #9198a1 }}
      .bg {{ fill: #0d1117; stroke: #3d444d }}
      .grid {{ stroke: #3d444d }}
{_styles(1)}
    }}
  </style>
  <rect class="bg" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>
  <text class="b" x="20" y="28">{name}</text>
{drawn}
</svg>
"""


def _styles(mode: int) -> str:
    """Return the colours of all lines and of their points, light (0) or dark (1)."""
    lines = []
    for number, (colours, dash) in enumerate(zip(COLOURS, DASHES, strict=True)):
        lines.append(f"    .s{number} {{ stroke: {colours[mode]}; stroke-dasharray: {dash} }}")
        lines.append(f"    .p{number} {{ fill: {colours[mode]} }}")
    return "\n".join("  " * mode + line for line in lines)


def _panel(panel: Panel, x0: float, width: float) -> str:
    values = sorted({x for points in panel.series.values() for x, _ in points})
    ticks = y_ticks(max(y for points in panel.series.values() for _, y in points))
    left, right, bottom = x0 + LEFT, x0 + width - RIGHT, HEIGHT - BOTTOM

    def x_of(x: float) -> float:
        if panel.over_time:
            return left + (right - left) * (x / values[-1] if values[-1] else 0.5)
        span = log10(values[-1] / values[0])
        return left + (right - left) * (log10(x / values[0]) / span if span else 0.5)

    def y_of(y: float) -> float:
        return bottom - (bottom - TOP) * y / ticks[-1]

    parts = [f'<text class="m" x="{x0 + 20:.0f}" y="52">{escape(panel.y_title)}</text>']
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(f'<text class="m e" x="{left - 8:.1f}" y="{y + 4:.1f}">{short(tick)}</text>')
    parts += [
        f'<text class="m c" x="{x_of(x):.1f}" y="{bottom + 18}">{short(x)}</text>'
        for x in with_room(_round(values[-1]) if panel.over_time else values, x_of)
    ]
    middle = (left + right) / 2
    parts.append(f'<text class="m c" x="{middle:.1f}" y="{bottom + 38}">{escape(panel.x_title)}</text>')
    at = left
    for number, (name, points) in enumerate(panel.series.items()):
        path = "L".join(f"{x_of(x):.1f} {y_of(y):.1f}" for x, y in points)
        parts.append(f'<path class="s s{number}" d="M{path}"/>')
        if not panel.over_time:
            parts += [
                f'<circle class="p{number}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3"/>' for x, y in points
            ]
        if len(panel.series) > 1:
            parts.append(f'<path class="s s{number}" d="M{at:.1f} {TOP - 16}h24"/>')
            parts.append(f'<text x="{at + 30:.1f}" y="{TOP - 12}">{escape(name)}</text>')
        at += 44 + 6.6 * len(name)
    return "\n".join(f"  {part}" for part in parts)


def y_ticks(most: float) -> list[float]:
    """Return 0 and multiples of 1, 2 or 5 times a power of ten, up to the first that is not below `most`."""
    if most <= 0:
        return [0, 1]
    rough = most / 5
    power = 10.0 ** floor(log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
    count = next(count for count in range(1, 12) if count * step >= most * 0.999)
    return [number * step for number in range(count + 1)]


def _round(most: float) -> list[float]:
    """Return the round ticks that are not above `most`."""
    return [tick for tick in y_ticks(most) if tick <= most]


def with_room(values: Sequence[float], x_of: Callable[[float], float]) -> list[float]:
    """Return the values with room for a label. The last one always has one."""
    found = [values[-1]]
    for value in reversed(values[:-1]):
        if x_of(found[-1]) - x_of(value) >= LABEL_PX:
            found.append(value)
    return found


def short(number: float) -> str:
    """Return a number for an axis, such as 10 K."""
    if number >= 1e6:
        return f"{round(number / 1e6, 3):g} M"
    if number >= 1e4:
        return f"{round(number / 1e3, 3):g} K"
    return f"{number:,.0f}" if number >= 100 else f"{round(number, 3):g}"
