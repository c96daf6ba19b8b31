"""Line charts of rates along the chain, with a band for the interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warehouse.report.charts import svg

WIDTH, HEIGHT, NARROW_HEIGHT = 500, 330, 260


@dataclass(frozen=True)
class Place:
    """A value at a position, in the units of the axes."""

    x: int
    value: float
    low: float | None
    high: float | None
    value_text: str


@dataclass(frozen=True)
class Line:
    """A run's values by position."""

    label: str
    index: int
    places: Sequence[Place]


@dataclass(frozen=True)
class Lines:
    """Percentages by position."""

    lines: Sequence[Line]
    x_axis: str
    y_axis: str
    description: str

    def draw(self, *, is_narrow: bool) -> Markup:
        """Return the drawing, which needs a key of the runs beside it."""
        width, height = (svg.NARROW_WIDTH, NARROW_HEIGHT) if is_narrow else (WIDTH, HEIGHT)
        left, right, top, bottom = 52, width - 12, 10, height - 56
        xs = [place.x for line in self.lines for place in line.places]
        x_scale = svg.Scale(min(xs) - 0.3, max(xs) + 0.3, left, right)
        y_scale = svg.Scale(0, 100, bottom, top)
        x_ticks = sorted({round(t) for t in x_scale.ticks(8)} & set(xs))
        parts = [
            *(svg.line(left, y_scale(t), right, y_scale(t), "grid") for t in y_scale.ticks()),
            *(svg.text(left - 8, y_scale(t) + 4, svg.short(t), "tick end") for t in y_scale.ticks()),
            *(svg.text(x_scale(t), bottom + 17, str(t), "tick middle") for t in x_ticks),
            svg.text((left + right) / 2, height - 16, self.x_axis, "axis middle"),
            svg.text(0, 0, self.y_axis, "axis middle", transform=f"translate(13 {(top + bottom) / 2:g}) rotate(-90)"),
        ]
        parts += [_band(line, x_scale, y_scale) for line in self.lines]
        parts += [_line(line, x_scale, y_scale) for line in self.lines]
        return svg.chart(height, self.description, *parts, width=width)


def _band(line: Line, x_scale: svg.Scale, y_scale: svg.Scale) -> Markup:
    ends = [
        (x_scale(p.x), y_scale(p.low), y_scale(p.high)) for p in line.places if p.low is not None and p.high is not None
    ]
    if len(ends) < 2:
        return Markup("")
    outline = [(x, high) for x, _, high in ends] + [(x, low) for x, low, _ in reversed(ends)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    return svg.tag("polygon", points=points, class_=f"band {svg.series(line.index)}")


def _line(line: Line, x_scale: svg.Scale, y_scale: svg.Scale) -> Markup:
    points = " ".join(f"{x_scale(p.x):.1f},{y_scale(p.value):.1f}" for p in line.places)
    marks = [
        svg.tag(
            "g",
            svg.tag("title", f"{line.label}: {p.value_text}"),
            svg.mark(x_scale(p.x), y_scale(p.value), line.index, 4.5),
        )
        for p in line.places
    ]
    return Markup("").join([svg.tag("polyline", points=points, class_=f"line {svg.series(line.index)}"), *marks])
