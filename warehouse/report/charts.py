"""SVG charts of the page: stacked bars, dots with intervals, and scatter plots. Text and attributes are escaped."""

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
"""Width of a chart in SVG units; the page scales it."""
SHAPES = ("circle", "square", "diamond", "triangle")
"""Marker shapes; with eight colors, 32 methods have distinct markers."""
_GLYPH = 6.9
"""Mean character width of a label in SVG units, slightly overestimated."""


class Chart(Protocol):
    """The data of a chart."""

    @property
    def description(self) -> str:
        """Description for assistive technology."""

    def draw(self) -> Markup:
        """Return the chart as SVG."""


def tag(name: str, *children: Markup | str, **attributes: Attribute) -> Markup:
    """Return an element. In attribute names, `_` becomes `-`, and a trailing `_` is removed (`class_`)."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value)) for key, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), attribute_text, inner)


def chart(height: float, description: str, *children: Markup) -> Markup:
    """Return a complete SVG with a description for assistive technology."""
    box = f"0 0 {WIDTH:g} {height:g}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=description, class_="chart")


def text(x: float, y: float, content: str, class_: str = "tick", **attributes: Attribute) -> Markup:
    """Return a text element."""
    return tag("text", content, x=x, y=y, class_=class_, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label_width(labels: Iterable[str]) -> float:
    """Return the width, in SVG units, to reserve for row labels left of an axis."""
    return min(420.0, 30 + 7.4 * max(map(len, labels), default=0))


class Look(NamedTuple):
    """Color and marker of a run."""

    series: int
    """Index of the method in the report; the eight colors repeat."""
    is_hollow: bool = False
    """Whether the marker is only an outline, for runs under load in a report that also has runs with one sample in
    flight.
    """

    @property
    def color(self) -> int:
        """Index of the color."""
        return self.series % 8

    @property
    def shape(self) -> str:
        """Marker shape; it differs between methods of one color."""
        return SHAPES[(self.series + self.series // 8) % len(SHAPES)]


def mark(x: float, y: float, look: Look, size: float = 5.5) -> Markup:
    """Return the marker of a run, centered at a point."""
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
    """Linear map from values to SVG coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value, clipped to the scale."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values, with spacing 1, 2 or 5 times a power of ten."""
        step = _round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def padded_scale(
    values: Sequence[float], start: float, end: float, *, low: float = -math.inf, high: float = math.inf
) -> Scale:
    """Return a scale over the values with some padding, limited to [low, high]."""
    bottom, top = min(values), max(values)
    room = 0.08 * (top - bottom) or 0.1 * abs(top) or 1.0
    return Scale(max(low, bottom - room), min(high, top + room), start, end)


def vertical_grid(scale: Scale, bottom: float, top: float = 4) -> Markup:
    """Return grid lines and tick labels of a horizontal scale."""
    ticks = scale.ticks(6)
    lines = [line(scale(t), top, scale(t), bottom, "grid") for t in ticks]
    return Markup("").join([*lines, *(text(scale(t), bottom + 17, short(t), "tick middle") for t in ticks)])


def scale_from_zero(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a scale from 0 to slightly above the largest value."""
    return Scale(0.0, 1.05 * max(values, default=0.0) or 1.0, start, end)


def short(value: float) -> str:
    """Format a number for an axis, without trailing zeros."""
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", MINUS)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def _plain(value: Attribute) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


_BAR_ROW = 28
_BAR = 21
"""Height of a bar in SVG units."""


@dataclass(frozen=True)
class Bar:
    """A stacked bar with its parts by kind."""

    label: str
    parts: Mapping[str, float]
    value_text: str
    """Printed total."""
    opens_group: bool = False
    """Whether to leave a gap before the bar."""

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class StackedBars:
    """Stacked bars over an axis that starts at zero."""

    bars: Sequence[Bar]
    axis: str
    description: str
    unit: str
    names: Mapping[str, str]
    """Legend labels by kind, in legend order."""

    @property
    def kinds(self) -> list[str]:
        """Kinds that occur in any bar."""
        return [kind for kind in self.names if any(bar.parts.get(kind) for bar in self.bars)]

    def draw(self) -> Markup:
        """Return the chart as SVG."""
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
    """A value, optionally with its interval."""

    label: str
    look: Look
    x: Interval
    value_text: str
    """Printed value with its interval."""
    y: Interval | None = None
    """Value on the vertical axis, for scatter plots."""


class Reference(NamedTuple):
    """A vertical reference line."""

    value: float
    is_dashed: bool


@dataclass(frozen=True)
class Dots:
    """Rows of values with intervals; the axis need not start at zero."""

    rows: Sequence[Dot]
    axis: str
    description: str
    low: float = 0.0
    """Lower limit of the axis."""
    high: float = float("inf")
    """Upper limit of the axis."""
    references: Sequence[Reference] = ()

    def scale(self, start: float, end: float) -> Scale:
        """Return the axis scale."""
        ends = [*_ends(dot.x for dot in self.rows), *(reference.value for reference in self.references)]
        return padded_scale(ends, start, end, low=self.low, high=self.high)

    def draw(self) -> Markup:
        """Return the chart as SVG."""
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
    """Points connected by a line, drawn with the color and marker of the first point."""

    label: str
    points: Sequence[int]
    """Point indices in line order."""
    values: Sequence[str] = ()
    """Label next to each point."""


@dataclass(frozen=True)
class Scatter:
    """Points with intervals on both axes; the legend is in `key`.

    The horizontal axis starts at zero; the vertical axis is in percent.
    """

    points: Sequence[Dot]
    x_axis: str
    y_axis: str
    description: str
    curves: Sequence[Curve] = ()
    front: Sequence[int] = ()
    """Indices of the points on the Pareto front, from left to right; empty: no front."""

    def look(self, curve: Curve) -> Look:
        """Return the curve's color and marker, taken from its first point."""
        return self.points[curve.points[0]].look

    @property
    def looks(self) -> list[Look]:
        """Color and marker of each point."""
        of_curves = {i: self.look(curve) for curve in reversed(self.curves) for i in curve.points}
        return [of_curves.get(i, point.look) for i, point in enumerate(self.points)]

    @property
    def key(self) -> list[tuple[Look, str]]:
        """Legend entries: (look, label) of each curve, and of each point outside of curves."""
        connected = {i for curve in self.curves for i in curve.points}
        curves = [(self.look(curve), curve.label) for curve in self.curves]
        return curves + [(point.look, point.label) for i, point in enumerate(self.points) if i not in connected]

    def places(self, points: Sequence[int]) -> list[tuple[float, float]]:
        """Return the (x, y) estimates of the points with these indices, without points that have no y."""
        return [(p.x.estimate, p.y.estimate) for p in map(self.points.__getitem__, points) if p.y]

    def draw(self) -> Markup:
        """Return the chart as SVG."""
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
    """Return all estimates and interval ends."""
    return [x for e in estimates for x in (e.estimate, e.low, e.high) if x is not None]


def _whisker(x1: float, y1: float, x2: float, y2: float, look: Look) -> Markup:
    dx, dy = (0, 4) if y1 == y2 else (4, 0)
    ends = ((x1, y1, x2, y2), (x1 - dx, y1 - dy, x1 + dx, y1 + dy), (x2 - dx, y2 - dy, x2 + dx, y2 + dy))
    return Markup("").join(line(*place, f"whisker series-{look.color}") for place in ends)
