"""Stacked horizontal bar charts: the parts of a total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warehouse.report.charts import svg

_ROW, _NARROW_ROW = 28, 40
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
        row_height, width = (_NARROW_ROW, svg.NARROW_WIDTH) if is_narrow else (_ROW, svg.WIDTH)
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
