"""The page's charts as SVG: stacked bars, lines, dots with intervals, and scatters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from warehouse.report import svg

_BAR_ROW, _NARROW_BAR_ROW = 28, 40
_BAR = 21
"""Height of a bar."""
_LEGEND_LINE = 18


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
    whole: float | None = None
    """End of the axis; None: beyond the longest bar."""

    @property
    def kinds(self) -> list[str]:
        """The kinds that any bar has."""
        return [kind for kind in self.names if any(bar.parts.get(kind) for bar in self.bars)]

    def draw(self, *, is_narrow: bool) -> Markup:
        """Return the drawing; a narrow one has the labels above the bars."""
        row_height, width = (_NARROW_BAR_ROW, svg.NARROW_WIDTH) if is_narrow else (_BAR_ROW, svg.WIDTH)
        left, right = (0, width - 62) if is_narrow else (svg.label_width(b.label for b in self.bars), width - 110)
        legend, top = _legend(self.kinds, self.names, left, width)
        gaps = [12 if bar.opens_group and i else 0 for i, bar in enumerate(self.bars)]
        bottom = top + 8 + row_height * len(self.bars) + sum(gaps)
        totals = [bar.total for bar in self.bars]
        scale = svg.Scale(0.0, self.whole, left, right) if self.whole else svg.scale_from_zero(totals, left, right)
        parts = [legend]
        for t in scale.ticks(4 if is_narrow else 6):
            anchor = "start" if is_narrow and not t else "middle"
            parts.append(svg.line(scale(t), top, scale(t), bottom, "grid"))
            parts.append(svg.text(scale(t), bottom + 17, svg.short(t), f"tick {anchor}"))
        parts.append(svg.text((left + right) / 2, bottom + 36, self.axis, "axis middle"))
        y = top + 6.0
        for bar, gap in zip(self.bars, gaps, strict=True):
            y += gap
            if is_narrow:
                parts.append(svg.text(0, y + 10, svg.fitted(bar.label, width), "label"))
                parts.append(self._bar(bar, scale, y + 15))
            else:
                parts.append(svg.text(left - 14, y + 15, bar.label, "label end"))
                parts.append(self._bar(bar, scale, y))
            y += row_height
        return svg.chart(bottom + 42, self.description, *parts, width=width)

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


def _legend(kinds: Sequence[str], names: Mapping[str, str], left: float, right: float) -> tuple[Markup, float]:
    """Return the legend, in as many lines as it needs, and where it ends."""
    x, y, parts = left, 4.0, []
    for kind in kinds:
        width = 17 + svg.text_width(names[kind])
        if x > left and x + width > right:
            x, y = left, y + _LEGEND_LINE
        parts.append(svg.tag("rect", x=x, y=y, width=12, height=12, class_=f"part part-{kind}"))
        parts.append(svg.text(x + 17, y + 10, names[kind], "tick"))
        x += width + 14
    return Markup("").join(parts), y + 22


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


_ROW, _NARROW_ROW = 30, 44
_Box = tuple[float, float, float, float]
"""Left, top, right and bottom; or the two ends of a line."""


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
    is_hollow: bool = False
    """Whether the mark is drawn as an outline, as `Scatter.key` says of what."""


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

    @property
    def ends(self) -> list[float]:
        """Everything that the axis has to show."""
        ends = [x for dot in self.rows for x in (dot.value, dot.low, dot.high) if x is not None]
        return ends + [reference.value for reference in self.references]

    def draw(self, *, is_narrow: bool) -> Markup:
        """Return the drawing; a narrow one has labels and values above the marks."""
        row_height, width = (_NARROW_ROW, svg.NARROW_WIDTH) if is_narrow else (_ROW, svg.WIDTH)
        height = row_height * len(self.rows) + 48
        left = 10 if is_narrow else svg.label_width(dot.label for dot in self.rows)
        right = width - (10 if is_narrow else 200)
        scale, bottom = svg.padded_scale(self.ends, left, right, low=self.low, high=self.high), height - 40
        parts = [_vertical_grid(scale, bottom, count=4 if is_narrow else 6)]
        for reference in self.references:
            x = scale(reference.value)
            parts.append(svg.line(x, 4, x, bottom, "reference dashed" if reference.is_dashed else "reference"))
        parts.append(svg.text((scale.start + scale.end) / 2, height - 4, self.axis, "axis middle"))
        for row, dot in enumerate(self.rows):
            y = row_height * row + (32 if is_narrow else row_height / 2 + 4)
            parts.append(_captions(dot, y, width) if is_narrow else _names_beside(dot, y, left))
            if dot.low is not None and dot.high is not None:
                parts.append(_whisker(scale(dot.low), y, scale(dot.high), y, dot.index))
            title = svg.tag("title", f"{dot.label}: {dot.value_text}")
            parts.append(svg.tag("g", title, svg.mark(scale(dot.value), y, dot.index)))
        return svg.chart(height, self.description, *parts, width=width)


@dataclass(frozen=True)
class Scatter:
    """Runs on two axes, with both intervals; the horizontal axis starts at zero."""

    points: Sequence[Point]
    x_axis: str
    y_axis: str
    description: str
    y_lowest: float = 0.0
    """Smallest value that the vertical axis can reach."""
    y_highest: float = 100.0
    """Largest value that the vertical axis can reach."""
    has_root_axis: bool = False
    """Whether the vertical axis is by square roots, so that values near 0 lie apart beside large ones."""
    key: tuple[str, str] | None = None
    """What hollow and what filled marks are; None: all are filled.

    Marks of one run that follow each other are joined, and the first is named.
    """

    @property
    def joined(self) -> list[tuple[Point, Point]]:
        """Return the pairs of marks of one run that follow each other."""
        return [(one, other) for one, other in itertools.pairwise(self.points) if one.index == other.index]

    def draw(self, *, is_narrow: bool) -> Markup:
        """Return the drawing."""
        height, right, bottom = (300, svg.NARROW_WIDTH - 12, 252) if is_narrow else (380, 1016, 326)
        top, points = 12 if self.key is None else 34, self.points
        xs = [x for p in points for x in (p.x, p.x_low, p.x_high) if x is not None]
        ys = [y for p in points for y in (p.y, p.y_low, p.y_high) if y is not None]
        y_scale = (
            svg.padded_root_scale(ys, bottom, top)
            if self.has_root_axis
            else svg.padded_scale(ys, bottom, top, low=self.y_lowest, high=self.y_highest)
        )
        left = max(44 if is_narrow else 64, 28 + max(svg.text_width(svg.short(tick)) for tick in y_scale.ticks()))
        x_scale = svg.scale_from_zero(xs, left, right)
        parts = [
            _vertical_grid(x_scale, bottom, top, count=4 if is_narrow else 6),
            *(svg.line(left, y_scale(t), right, y_scale(t), "grid") for t in y_scale.ticks()),
            *(svg.text(left - 8, y_scale(t) + 4, svg.short(t), "tick end") for t in y_scale.ticks()),
            svg.text((left + right) / 2, height - 8, self.x_axis, "axis middle"),
            svg.text(0, 0, self.y_axis, "axis middle", transform=f"translate(12 {(top + bottom) / 2:g}) rotate(-90)"),
        ]
        parts += [
            svg.line(
                x_scale(one.x), y_scale(one.y), x_scale(other.x), y_scale(other.y), f"join {svg.series(one.index)}"
            )
            for one, other in self.joined
        ]
        lines = [line for p in points for line in _intervals(p, x_scale, y_scale)]
        parts += [_whisker(*line, index) for line, index in lines]
        for p in points:
            title = svg.tag("title", f"{p.label}: {p.value_text}")
            parts.append(svg.tag("g", title, svg.mark(x_scale(p.x), y_scale(p.y), p.index, 7, is_hollow=p.is_hollow)))
        places = [(x_scale(p.x), y_scale(p.y)) for p in points]
        labels = [svg.fitted(p.label, (right - left) / 2) if is_narrow else p.label for p in points]
        second = {id(other) for _, other in self.joined}
        labels = ["" if id(p) in second else label for p, label in zip(points, labels, strict=True)]
        parts += _names(labels, places, [line for line, _ in lines], (left, top - 12, right, bottom))
        if self.key is not None:
            parts += _key(self.key, left)
        return svg.chart(height, self.description, *parts, width=svg.NARROW_WIDTH if is_narrow else svg.WIDTH)


def _names_beside(dot: Dot, y: float, left: float) -> Markup:
    name = svg.text(left - 14, y + 4, dot.label, "label end")
    return name + svg.text(svg.WIDTH - 186, y + 4, dot.value_text, "value")


def _captions(dot: Dot, y: float, width: float) -> Markup:
    """Return the label and the value above a row of a narrow chart."""
    room = width - svg.text_width(dot.value_text) - 10
    name = svg.text(0, y - 14, svg.fitted(dot.label, room), "label")
    return name + svg.text(width, y - 14, dot.value_text, "value end")


def _whisker(x1: float, y1: float, x2: float, y2: float, index: int) -> Markup:
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


def _intervals(p: Point, x_scale: svg.Scale, y_scale: svg.Scale) -> Iterator[tuple[_Box, int]]:
    """Yield the ends of a point's intervals in the drawing, with its index."""
    x, y = x_scale(p.x), y_scale(p.y)
    if p.x_low is not None and p.x_high is not None:
        yield (x_scale(p.x_low), y, x_scale(p.x_high), y), p.index
    if p.y_low is not None and p.y_high is not None:
        yield (x, y_scale(p.y_high), x, y_scale(p.y_low)), p.index


def _names(
    labels: Sequence[str], places: Sequence[tuple[float, float]], lines: Sequence[_Box], room: _Box
) -> list[Markup]:
    """Draw labels beside their marks, each at the first position where it overlaps neither a label nor a mark.

    One that crosses none of the lines either comes first. A label that is not beside its mark has a line to it. room:
    left, top, right and bottom of where labels may be.
    """
    taken: list[_Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y in places]
    crossed = [(x1 - 1, y1 - 1, x2 + 1, y2 + 1) for x1, y1, x2, y2 in lines]
    parts = []
    for label, (x, y) in zip(labels, places, strict=True):
        if not label:
            continue
        boxes = [_beside(label, x, y, side, dy) for dy in (-9, 18, -24, 33, -39, 48, -54, 63, 78) for side in (1, -1)]
        left, top, right, bottom = room
        inside = [b for b in boxes if b[0] > left - 4 and b[2] < right and b[1] > top and b[3] < bottom]
        free = [b for b in inside if not any(_overlap(b, other) for other in taken)]
        box = next((b for b in free if not any(_overlap(b, other) for other in crossed)), (free or inside or boxes)[0])
        taken.append(box)
        at_left = box[2] < x
        if not box[1] - 10 < y < box[3] + 20:
            edge = y + 9 if box[1] > y else y - 9
            parts.append(svg.line(x, edge, box[2] if at_left else box[0], box[3] - 7, "leader"))
        parts.append(svg.text(box[2 if at_left else 0], box[3] - 3, label, "label end" if at_left else "label"))
    return parts


def _beside(label: str, x: float, y: float, side: int, dy: float) -> _Box:
    """Return the place of a label to the right (1) or left (-1) of a mark, with its foot `dy` below the mark."""
    start, end = (x + 12, x + 12 + svg.text_width(label)) if side > 0 else (x - 12 - svg.text_width(label), x - 12)
    return start, y + dy - 11, end, y + dy + 3


def _key(names: tuple[str, str], left: float) -> list[Markup]:
    """Draw what hollow and filled marks are, above the chart."""
    parts, x = [], left + 8.0
    for name, is_hollow in zip(names, (True, False), strict=True):
        mark = svg.tag("circle", cx=x, cy=10, r=5.5, class_=f"mark key{' hollow' if is_hollow else ''}")
        parts += [mark, svg.text(x + 12, 14, name, "label")]
        x += svg.text_width(name) + 40
    return parts


def _overlap(box: _Box, other: _Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _vertical_grid(scale: svg.Scale, bottom: float, top: float = 4, *, count: int) -> Markup:
    ticks = scale.ticks(count)
    return Markup("").join(
        [svg.line(scale(t), top, scale(t), bottom, "grid") for t in ticks]
        + [svg.text(scale(t), bottom + 17, svg.short(t), "tick middle") for t in ticks]
    )
