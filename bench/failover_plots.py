"""Distributions as SVG: no plotting library, one page of text for each picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = ("#1b6ca8", "#c2410c", "#15803d", "#7e22ce", "#be185d", "#475569", "#a16207", "#0e7490")
INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"
FONT = "font-family='system-ui, sans-serif'"
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True, slots=True)
class Series:
    """Samples in seconds, with the limits that were set for some of their percentiles."""

    name: str
    samples: Sequence[float]
    targets: dict[str, float] = field(default_factory=dict)


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent of all do not exceed (nearest rank)."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


class Axis:
    """Seconds on a logarithmic scale from `left` to `right`, in pixels."""

    def __init__(self, samples: Sequence[float], left: float, right: float) -> None:
        low, high = min(samples) / 1.2, max(samples) * 1.2
        self.low = max((tick for tick in TICKS if tick <= low), default=TICKS[0])
        self.high = min((tick for tick in TICKS if tick >= high), default=TICKS[-1])
        self.left, self.right = left, right

    def at(self, seconds: float) -> float:
        """Position of a value, kept within the axis."""
        inside = min(max(seconds, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)

    def ticks(self) -> list[float]:
        """What is written below."""
        return [tick for tick in TICKS if self.low <= tick <= self.high]

    def grid(self, top: float, bottom: float, *, labels: bool) -> list[str]:
        """Vertical lines, with their seconds below when asked for."""
        parts = []
        for tick in self.ticks():
            x = self.at(tick)
            parts.append(f"<line x1='{x:.1f}' y1='{top}' x2='{x:.1f}' y2='{bottom}' stroke='{GRID}'/>")
            if labels:
                parts.append(text(x, bottom + 16, f"{tick:g} s", anchor="middle", colour=FAINT))
        return parts


def text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, size: int = 12, bold: bool = False
) -> str:
    """One line of text."""
    weight = " font-weight='600'" if bold else ""
    style = f"{FONT} font-size='{size}' fill='{colour}' text-anchor='{anchor}'{weight}"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(words)}</text>"


def page(width: int, height: int, parts: Sequence[str], title: str) -> str:
    """A picture with a white ground, so that it can be read on a dark page too."""
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img'>"
    ground = f"<rect width='{width}' height='{height}' fill='#ffffff'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>", ""])


def cumulative(series: Sequence[Series], title: str) -> str:
    """Which share of the pauses was no longer than x: one step curve for each series, names on the right."""
    width, height, left, right, top, bottom = 900, 420, 60, 640, 50, 370
    axis = Axis([sample for each in series for sample in each.samples], left, right)
    parts = [text(left, 26, title, size=15, bold=True), *axis.grid(top, bottom, labels=True)]
    for share in (0, 25, 50, 75, 90, 100):
        y = bottom - share / 100 * (bottom - top)
        parts.append(f"<line x1='{left}' y1='{y:.1f}' x2='{right}' y2='{y:.1f}' stroke='{GRID}'/>")
        parts.append(text(left - 8, y + 4, f"{share} %", anchor="end", colour=FAINT))
    parts.append(text((left + right) / 2, bottom + 36, "pause, seconds (logarithmic)", anchor="middle", colour=FAINT))
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        ordered = sorted(each.samples)
        path, y = [f"M {axis.at(ordered[0]):.1f} {bottom}"], float(bottom)
        for rank, sample in enumerate(ordered, 1):
            x = axis.at(sample)
            path.append(f"L {x:.1f} {y:.1f}")
            y = bottom - rank / len(ordered) * (bottom - top)
            path.append(f"L {x:.1f} {y:.1f}")
        path.append(f"L {right} {top}")
        parts.append(f"<path d='{' '.join(path)}' fill='none' stroke='{colour}' stroke-width='2'/>")
        key = top + 14 + 44 * number
        parts.append(
            f"<line x1='{right + 16}' y1='{key}' x2='{right + 40}' y2='{key}' stroke='{colour}' stroke-width='3'/>"
        )
        parts.append(text(right + 48, key + 4, each.name, bold=True))
        median, most = percentile(each.samples, 50), percentile(each.samples, 99)
        parts.append(
            text(right + 48, key + 20, f"p50 {median:.2f} s, p99 {most:.2f} s, n {len(ordered)}", colour=FAINT)
        )
    return page(width, height, parts, title)


def histograms(series: Sequence[Series], title: str) -> str:
    """One row for each series on a common scale: how many pauses fell where, with p50, p99 and the limit for p99."""
    width, left, right, row, head = 860, 190, 830, 92, 60
    height = head + row * len(series) + 40
    axis = Axis(
        [*(s for each in series for s in each.samples), *(t for each in series for t in each.targets.values())],
        left,
        right,
    )
    foot = head + row * len(series)
    parts = [text(20, 26, title, size=15, bold=True), *axis.grid(head - 8, foot, labels=True)]
    parts.append(text(20, 46, "bars: how many failures; | median, ‖ p99; dashed: the limit set for p99", colour=FAINT))
    bins = 60
    for number, each in enumerate(series):
        base, colour = head + row * (number + 1) - 18, COLOURS[number % len(COLOURS)]
        tall = row - 34
        counts = [0] * bins
        for sample in each.samples:
            counts[min(bins - 1, int((axis.at(sample) - left) / (right - left) * bins))] += 1
        wide = (right - left) / bins
        for slot, count in enumerate(counts):
            if count:
                high = max(2.0, tall * count / max(counts))
                place = f"x='{left + slot * wide:.1f}' y='{base - high:.1f}' width='{wide - 1:.1f}' height='{high:.1f}'"
                parts.append(f"<rect {place} fill='{colour}' fill-opacity='0.75'/>")
        parts.append(f"<line x1='{left}' y1='{base}' x2='{right}' y2='{base}' stroke='{FAINT}'/>")
        for percent, offsets in ((50, (0,)), (99, (-1.5, 1.5))):
            for offset in offsets:
                x = axis.at(percentile(each.samples, percent)) + offset
                parts.append(f"<line x1='{x:.1f}' y1='{base - tall - 4}' x2='{x:.1f}' y2='{base + 5}' stroke='{INK}'/>")
        if "p99" in each.targets:
            x = axis.at(each.targets["p99"])
            dashes = "stroke-dasharray='4 3'"
            parts.append(
                f"<line x1='{x:.1f}' y1='{base - tall - 6}' x2='{x:.1f}' y2='{base}' stroke='#dc2626' {dashes}/>"
            )
        parts.append(text(20, base - tall / 2, each.name, bold=True))
        parts.append(
            text(20, base - tall / 2 + 16, f"n = {len(each.samples)}, max {max(each.samples):.2f} s", colour=FAINT)
        )
    return page(width, height, parts, title)
