"""SVG elements and axes. Every text and attribute is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup, escape

from warehouse.formatting import MINUS

Attribute = str | float | int
WIDTH = 1040
"""Width of a chart in its own units; the page scales it."""
NARROW_WIDTH = 330
"""Width of a chart for a phone, whose units are then about as large as the pixels that text is measured in."""
SHAPES = ("circle", "square", "diamond", "triangle")
"""Shapes of marks; 32 runs have different marks."""
_GLYPH = 6.9
"""Mean width of a letter of a label, slightly too large."""


class Chart(Protocol):
    """The data of a chart, which is drawn for a wide and for a narrow page."""

    @property
    def description(self) -> str:
        """What the chart shows, for assistive technology."""

    def draw(self, *, is_narrow: bool) -> Markup:
        """Return the drawing."""


def tag(name: str, *children: Markup | str, **attributes: Attribute) -> Markup:
    """Return an element. In attribute names `_` becomes `-`, and a trailing `_` is dropped (`class_`)."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value)) for key, value in attributes.items()
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), attribute_text, inner)


def chart(height: float, description: str, *children: Markup, width: float = WIDTH) -> Markup:
    """Return a complete drawing; assistive technology reads the description instead."""
    is_narrow = width <= NARROW_WIDTH
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=description,
        class_="chart narrow" if is_narrow else "chart broad",
        style=f"max-width:{1.5 * width if is_narrow else width:g}px",
    )


def text(x: float, y: float, content: str, class_: str = "tick", **attributes: Attribute) -> Markup:
    """Return a text element."""
    return tag("text", content, x=x, y=y, class_=class_, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text_width(content: str) -> float:
    """Return about how wide a label is."""
    return _GLYPH * len(content)


def fitted(content: str, width: float) -> str:
    """Return a label, cut where it is wider than this."""
    room = max(1, int(width / _GLYPH))
    return content if len(content) <= room else f"{content[: room - 1].rstrip()}…"


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


@dataclass(frozen=True)
class RootScale(Scale):
    """Map from values to coordinates by their square roots, whose signs are kept: small ones lie further apart."""

    def __call__(self, value: float) -> float:
        """See Scale.__call__."""
        inside = signed_root(min(max(value, self.low), self.high))
        bottom, top = signed_root(self.low), signed_root(self.high)
        return self.start + (inside - bottom) / (top - bottom) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` values of 1, 5 or 2 times a power of ten, and 0, that do not lie close to each other.

        Over a narrow range, which has fewer than three of them, they are spaced as on a linear scale.
        """
        gap = (signed_root(self.high) - signed_root(self.low)) / (1.5 * count)
        highest = math.floor(math.log10(max(abs(self.low), abs(self.high))))
        chosen = [0.0] if self.low <= 0 <= self.high else []
        for step in (1, 5, 2):
            for power in range(highest, highest - 4, -1):
                for value in (step * 10.0**power, -step * 10.0**power):
                    far = all(abs(signed_root(value) - signed_root(other)) >= gap for other in chosen)
                    if self.low <= value <= self.high and far:
                        chosen.append(value)
        return sorted(chosen) if len(chosen) > 2 else super().ticks(count)


def signed_root(value: float) -> float:
    """Return the square root of the absolute value, with the sign of the value."""
    return math.copysign(math.sqrt(abs(value)), value)


def padded_root_scale(values: Sequence[float], start: float, end: float) -> RootScale:
    """Return a scale by square roots over values with some margin around them."""
    bottom, top = signed_root(min(values)), signed_root(max(values))
    room = 0.12 * (top - bottom) or 0.1 * abs(top) or 1.0
    low, high = bottom - room, top + room
    return RootScale(low * abs(low), high * abs(high), start, end)


def padded_scale(
    values: Sequence[float], start: float, end: float, *, low: float = -math.inf, high: float = math.inf
) -> Scale:
    """Return a scale over values with some margin around them, within limits."""
    bottom, top = min(values), max(values)
    room = 0.08 * (top - bottom) or 0.1 * abs(top) or 1.0
    return Scale(max(low, bottom - room), min(high, top + room), start, end)


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
