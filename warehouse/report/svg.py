"""SVG elements and axes. Every text and attribute is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup, escape

from harness.cli.number_format import MINUS

Attribute = str | float | int
WIDTH = 1040
"""Width of a chart in its own units; the page scales it."""
SHAPES = ("circle", "square", "diamond", "triangle")
"""Shapes of marks; 32 runs have different marks."""
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


def text_width(content: str) -> float:
    """Return about how wide a label is."""
    return _GLYPH * len(content)


def label_width(labels: Iterable[str]) -> float:
    """Return the width of the row labels to the left of an axis."""
    return min(420.0, 30 + 7.4 * max(map(len, labels), default=0))


def series(index: int) -> str:
    """Return the style class for the color of the run at this index in the report; eight colors, repeated."""
    return f"series-{index % 8}"


def shape(index: int) -> str:
    """Return the shape of the mark that distinguishes series without color; runs of one color differ in it."""
    return SHAPES[(index + index // 8) % len(SHAPES)]


def mark(x: float, y: float, index: int, size: float = 5.5, *, is_hollow: bool = False) -> Markup:
    """Return the mark of a run, centered at a point; a hollow one is its outline."""
    class_ = f"mark {series(index)}{' hollow' if is_hollow else ''}"
    if shape(index) == "circle":
        return tag("circle", cx=x, cy=y, r=size, class_=class_)
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
    }[shape(index)]
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
