"""The page's charts as SVG: stacked bars, dots with intervals, and scatters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from warehouse.report import svg
from warehouse.report.facts import Estimate

_BAR_ROW = 28
_BAR = 21
"""Height of a bar."""


@dataclass(frozen=True)
class Bar:
    """A bar with its parts by kind."""

    label: str
    parts: Mapping[str, float]
    value_text: str
    """The total, as printed."""
    opens_group: bool = False
    """Whether there is a gap before the bar."""

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class StackedBars:
    """Bars over an axis from zero."""

    bars: Sequence[Bar]
    axis: str
    description: str
    unit: str
    names: Mapping[str, str]
    """Printed name by kind, in the order of the legend."""

    @property
    def kinds(self) -> list[str]:
        """The kinds that any bar has."""
        return [kind for kind in self.names if any(bar.parts.get(kind) for bar in self.bars)]

    def draw(self) -> Markup:
        """Return the drawing."""
        left, right, top = svg.label_width(bar.label for bar in self.bars), svg.WIDTH - 110, 26
        gaps = [12 if bar.opens_group and i else 0 for i, bar in enumerate(self.bars)]
        bottom = top + 8 + _BAR_ROW * len(self.bars) + sum(gaps)
        scale = svg.scale_from_zero([bar.total for bar in self.bars], left, right)
        parts = [self._legend(left), svg.vertical_grid(scale, bottom, top)]
        parts.append(svg.text((left + right) / 2, bottom + 36, self.axis, "axis middle"))
        y = top + 6.0
        for bar, gap in zip(self.bars, gaps, strict=True):
            y += gap
            parts.append(svg.text(left - 14, y + 15, bar.label, "label end"))
            parts.append(self._bar(bar, scale, y))
            y += _BAR_ROW
        return svg.chart(bottom + 42, self.description, *parts)

    def _bar(self, bar: Bar, scale: svg.Scale, y: float) -> Markup:
        done, parts = 0.0, []
        for kind in self.kinds:
            amount = max(0.0, bar.parts.get(kind, 0.0))
            width, share = scale(done + amount) - scale(done), 100 * amount / (bar.total or 1.0)
            if width > 0:
                title = f"{bar.label}, {self.names[kind]}: {amount:.4g} {self.unit} ({share:.1f} % of the bar)"
                inside = svg.text(scale(done) + width / 2, y + 15, f"{share:.0f} %", "inside middle")
                rectangle = svg.tag(
                    "rect", x=scale(done), y=y, width=max(width - 0.8, 0.4), height=_BAR, class_=f"part part-{kind}"
                )
                parts.append(svg.tag("g", svg.tag("title", title), rectangle, inside if width > 36 else Markup("")))
            done += amount
        return Markup("").join([*parts, svg.text(scale(bar.total) + 8, y + 15, bar.value_text, "value")])

    def _legend(self, x: float) -> Markup:
        parts = []
        for kind in self.kinds:
            parts.append(svg.tag("rect", x=x, y=4, width=12, height=12, class_=f"part part-{kind}"))
            parts.append(svg.text(x + 17, 14, self.names[kind], "tick"))
            x += 31 + svg.text_width(self.names[kind])
        return Markup("").join(parts)


_ROW = 30


@dataclass(frozen=True)
class Dot:
    """A value with its interval, if it has one."""

    label: str
    index: int
    """Index of the run in the report, which determines color and mark."""
    x: Estimate
    value_text: str
    """The value with its interval, as printed."""


@dataclass(frozen=True)
class Point:
    """A run on two axes."""

    label: str
    index: int
    x: Estimate
    y: Estimate
    value_text: str


class Reference(NamedTuple):
    """A vertical line that values are read against."""

    value: float
    is_dashed: bool


@dataclass(frozen=True)
class Dots:
    """Rows of values over an axis that does not necessarily start at zero."""

    rows: Sequence[Dot]
    axis: str
    description: str
    low: float = 0.0
    """Smallest value that the axis can reach."""
    high: float = float("inf")
    """Largest value that the axis can reach."""
    references: Sequence[Reference] = ()

    def scale(self, start: float, end: float) -> svg.Scale:
        """Return the scale of the axis."""
        ends = [*_ends(dot.x for dot in self.rows), *(reference.value for reference in self.references)]
        return svg.padded_scale(ends, start, end, low=self.low, high=self.high)

    def draw(self) -> Markup:
        """Return the drawing."""
        height, left = _ROW * len(self.rows) + 48, svg.label_width(dot.label for dot in self.rows)
        scale, bottom = self.scale(left, svg.WIDTH - 200), height - 40
        parts = [svg.vertical_grid(scale, bottom)]
        for reference in self.references:
            x = scale(reference.value)
            parts.append(svg.line(x, 4, x, bottom, "reference dashed" if reference.is_dashed else "reference"))
        parts.append(svg.text((scale.start + scale.end) / 2, height - 4, self.axis, "axis middle"))
        for row, dot in enumerate(self.rows):
            y = _ROW * (row + 0.5) + 4
            parts.append(svg.text(left - 14, y + 4, dot.label, "label end"))
            parts.append(svg.text(svg.WIDTH - 186, y + 4, dot.value_text, "value"))
            if dot.x.low is not None and dot.x.high is not None:
                parts.append(_whisker(scale(dot.x.low), y, scale(dot.x.high), y, dot.index))
            title = svg.tag("title", f"{dot.label}: {dot.value_text}")
            parts.append(svg.tag("g", title, svg.mark(scale(dot.x.value), y, dot.index)))
        return svg.chart(height, self.description, *parts)


@dataclass(frozen=True)
class Scatter:
    """Runs on two axes, with both intervals; the horizontal axis starts at zero; the vertical one is in percent.

    It needs a key of the runs.
    """

    points: Sequence[Point]
    x_axis: str
    y_axis: str
    description: str

    def draw(self) -> Markup:
        """Return the drawing."""
        left, right, top, bottom = 64, svg.WIDTH - 24, 12, 326
        y_scale = svg.padded_scale(_ends(p.y for p in self.points), bottom, top, low=0.0, high=100.0)
        x_scale = svg.scale_from_zero(_ends(p.x for p in self.points), left, right)
        parts = [
            svg.vertical_grid(x_scale, bottom, top),
            *(svg.line(left, y_scale(t), right, y_scale(t), "grid") for t in y_scale.ticks()),
            *(svg.text(left - 8, y_scale(t) + 4, svg.short(t), "tick end") for t in y_scale.ticks()),
            svg.text((left + right) / 2, 372, self.x_axis, "axis middle"),
            svg.text(0, 0, self.y_axis, "axis middle", transform=f"translate(12 {(top + bottom) / 2:g}) rotate(-90)"),
        ]
        for p in self.points:
            x, y = x_scale(p.x.value), y_scale(p.y.value)
            if p.x.low is not None and p.x.high is not None:
                parts.append(_whisker(x_scale(p.x.low), y, x_scale(p.x.high), y, p.index))
            if p.y.low is not None and p.y.high is not None:
                parts.append(_whisker(x, y_scale(p.y.high), x, y_scale(p.y.low), p.index))
            title = svg.tag("title", f"{p.label}: {p.value_text}")
            parts.append(svg.tag("g", title, svg.mark(x, y, p.index, 7)))
        return svg.chart(380, self.description, *parts)


def _ends(estimates: Iterable[Estimate]) -> list[float]:
    """Return everything that an axis has to show."""
    return [x for e in estimates for x in (e.value, e.low, e.high) if x is not None]


def _whisker(x1: float, y1: float, x2: float, y2: float, index: int) -> Markup:
    """Draw the line of an interval with its two ends."""
    dx, dy = (0, 4) if y1 == y2 else (4, 0)
    ends = ((x1, y1, x2, y2), (x1 - dx, y1 - dy, x1 + dx, y1 + dy), (x2 - dx, y2 - dy, x2 + dx, y2 + dy))
    return Markup("").join(svg.line(*place, f"whisker {svg.series(index)}") for place in ends)
