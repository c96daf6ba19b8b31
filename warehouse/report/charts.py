"""The page's charts as SVG: stacked bars, dots with intervals, and scatters. Every text and attribute is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from markupsafe import Markup, escape

from harness.cli.number_format import MINUS
from warehouse.statistics.intervals import Interval

Attribute = str | float | int
WIDTH = 1040
"""Width of a chart in its own units; the page scales it."""
SHAPES = ("circle", "square", "diamond", "triangle")
"""Shapes of marks; 32 methods have different marks."""
_GLYPH = 6.9
"""Mean width of a letter of a label, slightly too large."""


class Chart(Protocol):
    """The data of a chart."""

    @property
    def description(self) -> str:
        """What the chart shows, for assistive technology."""

    def draw(self) -> Markup:
        """Return the drawing."""


def tag(name: str, *children: Markup | str, **attributes: Attribute) -> Markup:
    """Return an element. In attribute names `_` becomes `-`, and a trailing `_` is dropped (`class_`)."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value)) for key, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), attribute_text, inner)


def chart(height: float, description: str, *children: Markup) -> Markup:
    """Return a complete drawing; assistive technology reads the description instead."""
    box = f"0 0 {WIDTH:g} {height:g}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=description, class_="chart")


def text(x: float, y: float, content: str, class_: str = "tick", **attributes: Attribute) -> Markup:
    """Return a text element."""
    return tag("text", content, x=x, y=y, class_=class_, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label_width(labels: Iterable[str]) -> float:
    """Return the width of the row labels to the left of an axis."""
    return min(420.0, 30 + 7.4 * max(map(len, labels), default=0))


class Look(NamedTuple):
    """Color and mark of a run."""

    series: int
    """Number of its method in the report; eight colors, repeated."""
    is_hollow: bool = False
    """Whether the mark is an outline: the run is under load, and the report has others with one sample in flight."""

    @property
    def color(self) -> int:
        """Number of the color."""
        return self.series % 8

    @property
    def shape(self) -> str:
        """Shape of the mark; methods of one color differ in it."""
        return SHAPES[(self.series + self.series // 8) % len(SHAPES)]


def mark(x: float, y: float, look: Look, size: float = 5.5) -> Markup:
    """Return the mark of a run, centered at a point."""
    class_ = f"mark series-{look.color}{' hollow' if look.is_hollow else ''}"
    if look.shape == "circle":
        return tag("circle", cx=x, cy=y, r=size, class_=class_)
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
    }[look.shape]
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return tag("polygon", points=points, class_=class_)


@dataclass(frozen=True)
class Scale:
    """Linear map from values to coordinates of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value; values outside the scale are clipped to its ends."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values, spaced by 1, 2 or 5 times a power of ten."""
        step = _round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def padded_scale(
    values: Sequence[float], start: float, end: float, *, low: float = -math.inf, high: float = math.inf
) -> Scale:
    """Return a scale over values with some margin around them, within limits."""
    bottom, top = min(values), max(values)
    room = 0.08 * (top - bottom) or 0.1 * abs(top) or 1.0
    return Scale(max(low, bottom - room), min(high, top + room), start, end)


def vertical_grid(scale: Scale, bottom: float, top: float = 4) -> Markup:
    """Return lines at the ticks of a horizontal scale, with the numbers below."""
    ticks = scale.ticks(6)
    lines = [line(scale(t), top, scale(t), bottom, "grid") for t in ticks]
    return Markup("").join([*lines, *(text(scale(t), bottom + 17, short(t), "tick middle") for t in ticks)])


def scale_from_zero(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a scale from zero to slightly above the highest value."""
    return Scale(0.0, 1.05 * max(values, default=0.0) or 1.0, start, end)


def short(value: float) -> str:
    """Return a number for an axis, without insignificant digits."""
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", MINUS)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def _plain(value: Attribute) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


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
        left, right, top = label_width(bar.label for bar in self.bars), WIDTH - 110, 26
        gaps = [12 if bar.opens_group and i else 0 for i, bar in enumerate(self.bars)]
        bottom = top + 8 + _BAR_ROW * len(self.bars) + sum(gaps)
        scale = scale_from_zero([bar.total for bar in self.bars], left, right)
        parts = [self._legend(left), vertical_grid(scale, bottom, top)]
        parts.append(text((left + right) / 2, bottom + 36, self.axis, "axis middle"))
        y = top + 6.0
        for bar, gap in zip(self.bars, gaps, strict=True):
            y += gap
            parts.append(text(left - 14, y + 15, bar.label, "label end"))
            parts.append(self._bar(bar, scale, y))
            y += _BAR_ROW
        return chart(bottom + 42, self.description, *parts)

    def _bar(self, bar: Bar, scale: Scale, y: float) -> Markup:
        done, parts = 0.0, []
        for kind in self.kinds:
            amount = max(0.0, bar.parts.get(kind, 0.0))
            width, share = scale(done + amount) - scale(done), 100 * amount / (bar.total or 1.0)
            if width > 0:
                title = f"{bar.label}, {self.names[kind]}: {amount:.4g} {self.unit} ({share:.1f} % of the bar)"
                inside = text(scale(done) + width / 2, y + 15, f"{share:.0f} %", "inside middle")
                rectangle = tag(
                    "rect", x=scale(done), y=y, width=max(width - 0.8, 0.4), height=_BAR, class_=f"part part-{kind}"
                )
                parts.append(tag("g", tag("title", title), rectangle, inside if width > 36 else Markup("")))
            done += amount
        return Markup("").join([*parts, text(scale(bar.total) + 8, y + 15, bar.value_text, "value")])

    def _legend(self, x: float) -> Markup:
        parts = []
        for kind in self.kinds:
            parts.append(tag("rect", x=x, y=4, width=12, height=12, class_=f"part part-{kind}"))
            parts.append(text(x + 17, 14, self.names[kind], "tick"))
            x += 31 + _GLYPH * len(self.names[kind])
        return Markup("").join(parts)


_ROW = 30


@dataclass(frozen=True)
class Dot:
    """A value with its interval, if it has one."""

    label: str
    look: Look
    x: Interval
    value_text: str
    """The value with its interval, as printed."""
    y: Interval | None = None
    """The value on the vertical axis of a scatter."""


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

    def scale(self, start: float, end: float) -> Scale:
        """Return the scale of the axis."""
        ends = [*_ends(dot.x for dot in self.rows), *(reference.value for reference in self.references)]
        return padded_scale(ends, start, end, low=self.low, high=self.high)

    def draw(self) -> Markup:
        """Return the drawing."""
        height, left = _ROW * len(self.rows) + 48, label_width(dot.label for dot in self.rows)
        scale, bottom = self.scale(left, WIDTH - 200), height - 40
        parts = [vertical_grid(scale, bottom)]
        for reference in self.references:
            x = scale(reference.value)
            parts.append(line(x, 4, x, bottom, "reference dashed" if reference.is_dashed else "reference"))
        parts.append(text((scale.start + scale.end) / 2, height - 4, self.axis, "axis middle"))
        for row, dot in enumerate(self.rows):
            y = _ROW * (row + 0.5) + 4
            parts.append(text(left - 14, y + 4, dot.label, "label end"))
            parts.append(text(WIDTH - 186, y + 4, dot.value_text, "value"))
            if dot.x.low is not None and dot.x.high is not None:
                parts.append(_whisker(scale(dot.x.low), y, scale(dot.x.high), y, dot.look))
            title = tag("title", f"{dot.label}: {dot.value_text}")
            parts.append(tag("g", title, mark(scale(dot.x.estimate), y, dot.look)))
        return chart(height, self.description, *parts)


class Curve(NamedTuple):
    """Points of a scatter that a line connects; they have color and mark of its first."""

    label: str
    points: Sequence[int]
    """Their indices, in the order of the line."""
    values: Sequence[str] = ()
    """What is printed beside each of them."""


@dataclass(frozen=True)
class Scatter:
    """Points on two axes, with both intervals; the horizontal axis starts at zero; the vertical one is in percent.

    It needs its key.
    """

    points: Sequence[Dot]
    x_axis: str
    y_axis: str
    description: str
    curves: Sequence[Curve] = ()
    front: Sequence[int] = ()
    """Indices of the points on the Pareto front, from left to right; empty: none is drawn."""

    def look(self, curve: Curve) -> Look:
        """Return a curve's color and mark, those of its first point."""
        return self.points[curve.points[0]].look

    @property
    def looks(self) -> list[Look]:
        """Each point's color and mark."""
        of_curves = {i: self.look(curve) for curve in reversed(self.curves) for i in curve.points}
        return [of_curves.get(i, point.look) for i, point in enumerate(self.points)]

    @property
    def key(self) -> list[tuple[Look, str]]:
        """Color and mark, and name, of each curve and of each point on none."""
        connected = {i for curve in self.curves for i in curve.points}
        curves = [(self.look(curve), curve.label) for curve in self.curves]
        return curves + [(point.look, point.label) for i, point in enumerate(self.points) if i not in connected]

    def places(self, points: Sequence[int]) -> list[tuple[float, float]]:
        """Return the estimates on both axes of the points of a curve or front."""
        return [(p.x.estimate, p.y.estimate) for p in map(self.points.__getitem__, points) if p.y]

    def draw(self) -> Markup:
        """Return the drawing."""
        left, right, top, bottom = 64, WIDTH - 24, 12, 326
        y_scale = padded_scale(_ends(p.y for p in self.points if p.y), bottom, top, low=0.0, high=100.0)
        x_scale = scale_from_zero(_ends(p.x for p in self.points), left, right)
        parts = [
            vertical_grid(x_scale, bottom, top),
            *(line(left, y_scale(t), right, y_scale(t), "grid") for t in y_scale.ticks()),
            *(text(left - 8, y_scale(t) + 4, short(t), "tick end") for t in y_scale.ticks()),
            text((left + right) / 2, 372, self.x_axis, "axis middle"),
            text(0, 0, self.y_axis, "axis middle", transform=f"translate(12 {(top + bottom) / 2:g}) rotate(-90)"),
        ]
        if self.front:
            steps = "".join(f" H{x_scale(x):.1f} V{y_scale(y):.1f}" for x, y in self.places(self.front))
            start = x_scale(self.places(self.front)[0][0])
            parts.append(tag("path", d=f"M{start:.1f} {bottom}{steps} H{right}", class_="reference dashed"))
        for curve in self.curves:
            corners = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in self.places(curve.points))
            parts.append(tag("polyline", points=corners, class_=f"curve series-{self.look(curve).color}"))
        for p, look in zip(self.points, self.looks, strict=True):
            assert p.y is not None
            x, y = x_scale(p.x.estimate), y_scale(p.y.estimate)
            if p.x.low is not None and p.x.high is not None:
                parts.append(_whisker(x_scale(p.x.low), y, x_scale(p.x.high), y, look))
            if p.y.low is not None and p.y.high is not None:
                parts.append(_whisker(x, y_scale(p.y.high), x, y_scale(p.y.low), look))
            title = tag("title", f"{p.label}: {p.value_text}")
            parts.append(tag("g", title, mark(x, y, look, 7)))
        for curve in self.curves:
            for (x, y), value in zip(self.places(curve.points), curve.values, strict=False):
                parts.append(text(x_scale(x) - 7, y_scale(y) - 7, value, f"beside end series-{self.look(curve).color}"))
        return chart(380, self.description, *parts)


def _ends(estimates: Iterable[Interval]) -> list[float]:
    """Return everything that an axis has to show."""
    return [x for e in estimates for x in (e.estimate, e.low, e.high) if x is not None]


def _whisker(x1: float, y1: float, x2: float, y2: float, look: Look) -> Markup:
    """Draw the line of an interval with its two ends."""
    dx, dy = (0, 4) if y1 == y2 else (4, 0)
    ends = ((x1, y1, x2, y2), (x1 - dx, y1 - dy, x1 + dx, y1 + dy), (x2 - dx, y2 - dy, x2 + dx, y2 + dy))
    return Markup("").join(line(*place, f"whisker series-{look.color}") for place in ends)
