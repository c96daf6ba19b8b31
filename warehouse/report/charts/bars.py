"""Stacked horizontal bar charts: the parts of a total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warehouse.report.charts import svg

ROW = 28


@dataclass(frozen=True)
class Bar:
    """A bar with its parts by kind."""

    label: str
    parts: Mapping[str, float]
    value_text: str
    """The total, as printed."""
    opens_group: bool = False
    """Whether there is a gap before the bar."""


def stacked(
    bars: Sequence[Bar],
    axis: str,
    description: str,
    *,
    unit: str,
    names: Mapping[str, str],
    whole: float | None = None,
) -> Markup:
    """Draw bars over an axis from zero. names: printed name by kind, in legend order. whole: end of the axis."""
    gaps = [12 if bar.opens_group and i else 0 for i, bar in enumerate(bars)]
    height = 30 + ROW * len(bars) + sum(gaps) + 44
    totals = [sum(bar.parts.values()) for bar in bars]
    left, right = svg.label_width(bar.label for bar in bars), svg.WIDTH - 110
    scale = svg.Scale(0.0, whole, left, right) if whole else svg.scale_from_zero(totals, left, right)
    kinds = [kind for kind in names if any(bar.parts.get(kind) for bar in bars)]
    bottom = height - 42
    parts = [_legend(kinds, names, left)]
    for t in scale.ticks(6):
        parts.append(svg.line(scale(t), 26, scale(t), bottom, "grid"))
        parts.append(svg.text(scale(t), bottom + 17, svg.short(t), "tick middle"))
    parts.append(svg.text((left + right) / 2, height - 6, axis, "axis middle"))
    y = 32.0
    for bar, gap, total in zip(bars, gaps, totals, strict=True):
        y += gap
        parts.append(svg.text(left - 14, y + 15, bar.label, "label end"))
        parts.append(_segments(bar, kinds, names, scale, y, total, unit))
        parts.append(svg.text(scale(total) + 8, y + 15, bar.value_text, "value"))
        y += ROW
    return svg.chart(height, description, *parts)


def _segments(
    bar: Bar, kinds: Sequence[str], names: Mapping[str, str], scale: svg.Scale, y: float, total: float, unit: str
) -> Markup:
    done, parts = 0.0, []
    for kind in kinds:
        amount = max(0.0, bar.parts.get(kind, 0.0))
        width = scale(done + amount) - scale(done)
        if width > 0:
            description = f"{bar.label}, {names[kind]}: {amount:.4g} {unit} ({100 * amount / total:.1f} % of the bar)"
            inside = svg.text(scale(done) + width / 2, y + 15, f"{100 * amount / total:.0f} %", "inside middle")
            rectangle = svg.tag(
                "rect", x=scale(done), y=y, width=max(width - 0.8, 0.4), height=ROW - 7, class_=f"part part-{kind}"
            )
            parts.append(svg.tag("g", svg.tag("title", description), rectangle, inside if width > 36 else Markup("")))
        done += amount
    return Markup("").join(parts)


def _legend(kinds: Sequence[str], names: Mapping[str, str], left: float) -> Markup:
    x = left
    parts = []
    for kind in kinds:
        parts.append(svg.tag("rect", x=x, y=4, width=12, height=12, class_=f"part part-{kind}"))
        parts.append(svg.text(x + 17, 14, names[kind], "tick"))
        x += 17 + 7.0 * len(names[kind]) + 14
    return Markup("").join(parts)
