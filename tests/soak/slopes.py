"""Whether a figure grows: its slope by Theil and Sen, beside its noise, its size, and what explains growth.

    1. The first third of the time is the warm-up: caches fill, code is compiled, expiring keys collect.
    2. The slope is the median of the slopes between all pairs of points, which no single spike moves.
    3. A figure grows if, by that slope, it gains more over the rest of the time than `Limits` allow and than
       three times its noise, and if the second half of that time alone says so, too.
    4. Growth that another figure explains (memory by keys) is looked for in the rest that is not explained.

Reference: P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    Points = Sequence[tuple[float, float]]

STEADY, GROWS, EXPLAINED, SHORT = "steady", "grows", "explained", "too short"
WARM_UP = 1 / 3
"""Of the time that was measured."""
LEAST_S = 15 * 60
"""Of what follows the warm-up. In less time, what is filled once looks like growth."""
LEAST_POINTS = 8
MOST_POINTS = 600
NOISE_SIGMAS = 3
EXPLAINED_WITHIN = 0.2
"""The part of explained growth by which an explanation may be wrong."""
_SIGMA_OF_MAD = 1.4826


class Limits(NamedTuple):
    """How much a figure may gain in the judged time: a part of its size, or `floor` if that is more."""

    part: float
    floor: float


class Trend(NamedTuple):
    """A figure over the judged time. `noise` and `gain` are in its unit, `slope_per_h` per hour."""

    first: float
    last: float
    size: float
    slope_per_h: float
    gain: float
    noise: float
    verdict: str


def judge(points: Points, limits: Limits, explanation: Points | None = None) -> Trend:
    """Return trend and verdict of points (s, value), whose first is the begin of the measurement.

    `explanation` has what the value must be for a known reason, up to a constant.
    Raises ValueError if there are fewer than two points after the warm-up.
    """
    times, values = _after_warm_up(points)
    slope, noise = theil_sen(times, values)
    span = float(times[-1] - times[0])
    verdict = STEADY
    if span < LEAST_S or len(times) < LEAST_POINTS:
        verdict = SHORT
    elif _grows(times, values, limits, noise):
        verdict = GROWS
        if explanation is not None:
            explained = np.interp(times, *np.asarray(explanation, dtype=float).T)
            rest = values - explained
            known = abs(theil_sen(times, explained)[0]) * span
            allowed = max(limits.floor, limits.part * _size(values), EXPLAINED_WITHIN * known)
            _, rest_noise = theil_sen(times, rest)
            verdict = GROWS if _grows(times, rest, Limits(0, allowed), rest_noise) else EXPLAINED
    # The ends by the line: a single sample may be anything.
    middle, centre = _size(values), float(np.median(times))
    first, last = (middle + slope * (float(end) - centre) for end in (times[0], times[-1]))
    return Trend(first, last, middle, slope * 3600, slope * span, noise, verdict)


def theil_sen(times: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Return the slope per second, and the noise: the deviation from that line (1.4826 times the MAD)."""
    step = max(1, len(times) // MOST_POINTS)
    thin_times, thin_values = times[::step], values[::step]
    before, after = np.triu_indices(len(thin_times), 1)
    gaps = thin_times[after] - thin_times[before]
    apart = gaps > 0
    slope = float(np.median((thin_values[after] - thin_values[before])[apart] / gaps[apart]))
    rest = values - slope * times
    return slope, float(_SIGMA_OF_MAD * np.median(np.abs(rest - np.median(rest))))


def _after_warm_up(points: Points) -> tuple[np.ndarray, np.ndarray]:
    table = np.asarray(points, dtype=float)
    if len(table):
        table = table[table[:, 0] >= table[0, 0] + WARM_UP * (table[-1, 0] - table[0, 0])]
    if len(table) < 2:
        raise ValueError("there are fewer than two points after the warm-up")
    return table[:, 0], table[:, 1]


def _grows(times: np.ndarray, values: np.ndarray, limits: Limits, noise: float) -> bool:
    span = times[-1] - times[0]
    late = times >= times[0] + span / 2
    least = max(limits.floor, limits.part * _size(values), NOISE_SIGMAS * noise)
    slopes = [theil_sen(times, values)[0], theil_sen(times[late], values[late])[0]]
    return all(slope * span > least for slope in slopes)


def _size(values: np.ndarray) -> float:
    return float(np.median(values))
