"""Charts of values with intervals: on one axis (dots) or on two (scatter)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warehouse.report.charts import svg

ROW = 30


@dataclass(frozen=True)
class Dot:
    """A value with its interval, if it has one."""

    label: str
    index: int
    """Index of the run in the report, which determines color and mark."""
    value: float
    low: float | None
    high: float | None
    value_text: str
    """The value with its interval, as printed."""


@dataclass(frozen=True)
class Point:
    """A run on two axes."""

    label: str
    index: int
    x: float
    x_low: float | None
    x_high: float | None
    y: float
    y_low: float | None
    y_high: float | None
    value_text: str


def dots(rows: Sequence[Dot], axis: str, description: str, *, high: float = float("inf")) -> Markup:
    """Draw rows of values over an axis that does not necessarily start at zero."""
    height = ROW * len(rows) + 48
    ends = [x for dot in rows for x in (dot.value, dot.low, dot.high) if x is not None]
    left = svg.label_width(dot.label for dot in rows)
    scale = svg.padded_scale(ends, left, svg.WIDTH - 200, low=0.0, high=high)
    bottom = height - 40
    parts = [_vertical_grid(scale, bottom), svg.text((scale.start + scale.end) / 2, height - 4, axis, "axis middle")]
    for row, dot in enumerate(rows):
        y = ROW * row + ROW / 2 + 4
        parts.append(svg.text(left - 14, y + 4, dot.label, "label end"))
        if dot.low is not None and dot.high is not None:
            parts.append(whisker(scale(dot.low), y, scale(dot.high), y, dot.index))
        parts.append(
            svg.tag("g", svg.tag("title", f"{dot.label}: {dot.value_text}"), svg.mark(scale(dot.value), y, dot.index))
        )
        parts.append(svg.text(svg.WIDTH - 186, y + 4, dot.value_text, "value"))
    return svg.chart(height, description, *parts)


def scatter(points: Sequence[Point], x_axis: str, y_axis: str, description: str) -> Markup:
    """Draw runs on two axes, with both intervals."""
    height, left, right, top, bottom = 380, 64, svg.WIDTH - 24, 12, 326
    xs = [x for p in points for x in (p.x, p.x_low, p.x_high) if x is not None]
    ys = [y for p in points for y in (p.y, p.y_low, p.y_high) if y is not None]
    x_scale = svg.scale_from_zero(xs, left, right)
    y_scale = svg.padded_scale(ys, bottom, top, low=0.0, high=100.0)
    parts = [
        _vertical_grid(x_scale, bottom, top),
        *(svg.line(left, y_scale(t), right, y_scale(t), "grid") for t in y_scale.ticks()),
        *(svg.text(left - 8, y_scale(t) + 4, svg.short(t), "tick end") for t in y_scale.ticks()),
        svg.text((left + right) / 2, height - 8, x_axis, "axis middle"),
        svg.text(0, 0, y_axis, "axis middle", transform=f"translate(14 {(top + bottom) / 2:g}) rotate(-90)"),
    ]
    for p in points:
        x, y = x_scale(p.x), y_scale(p.y)
        if p.x_low is not None and p.x_high is not None:
            parts.append(whisker(x_scale(p.x_low), y, x_scale(p.x_high), y, p.index))
        if p.y_low is not None and p.y_high is not None:
            parts.append(whisker(x, y_scale(p.y_low), x, y_scale(p.y_high), p.index))
    parts += [
        svg.tag("g", svg.tag("title", f"{p.label}: {p.value_text}"), svg.mark(x_scale(p.x), y_scale(p.y), p.index, 7))
        for p in points
    ]
    places = [(x_scale(p.x), y_scale(p.y)) for p in points]
    parts += _names(points, places, right, bottom)
    return svg.chart(height, description, *parts)


def whisker(x1: float, y1: float, x2: float, y2: float, index: int) -> Markup:
    """Draw the line of an interval with its two ends."""
    dx, dy = (0, 4) if y1 == y2 else (4, 0)
    class_ = f"whisker {svg.series(index)}"
    return Markup("").join(
        (
            svg.line(x1, y1, x2, y2, class_),
            svg.line(x1 - dx, y1 - dy, x1 + dx, y1 + dy, class_),
            svg.line(x2 - dx, y2 - dy, x2 + dx, y2 + dy, class_),
        )
    )


def _names(points: Sequence[Point], places: Sequence[tuple[float, float]], right: float, bottom: float) -> list[Markup]:
    """Draw labels beside their marks, each at the first position where it overlaps neither a label nor a mark."""
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in places]
    parts = []
    for point, (x, y) in zip(points, places, strict=True):
        width = 6.9 * len(point.label)
        offsets = [(side, dy) for dy in (-9, 18, -24, 33, 48, 63, 78) for side in (1, -1)]
        boxes = [
            (x + 12 if side > 0 else x - 12 - width, y + dy - 11, x + 12 + width if side > 0 else x - 12, y + dy + 3)
            for side, dy in offsets
        ]
        inside = [b for b in boxes if b[0] > 60 and b[2] < right and b[1] > 0 and b[3] < bottom]
        box = next((b for b in inside if not any(_overlap(b, other) for other in taken)), (inside or boxes)[0])
        taken.append(box)
        at_left = box[2] < x
        parts.append(svg.text(box[2 if at_left else 0], box[3] - 3, point.label, "label end" if at_left else "label"))
    return parts


def _overlap(box: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _vertical_grid(scale: svg.Scale, bottom: float, top: float = 4) -> Markup:
    ticks = scale.ticks(6)
    return Markup("").join(
        [svg.line(scale(t), top, scale(t), bottom, "grid") for t in ticks]
        + [svg.text(scale(t), bottom + 17, svg.short(t), "tick middle") for t in ticks]
    )
