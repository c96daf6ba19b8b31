"""Charts for papers as SVG and PDF files, one column wide. Only this module imports matplotlib.

Colors match the page's light scheme; markers, dashes and hatches keep series distinguishable in grayscale. Text is
rendered literally (no math): as outlines in SVG and with an embedded font in PDF.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.screen import printable
from warehouse.database import WarehouseError
from warehouse.report.charts import Chart, Dots, Look, Scatter, StackedBars
from warehouse.statistics.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_INCHES = 3.3
"""Figure width: one column of the ACL, ICML and IEEE layouts."""
ENDINGS = ("svg", "pdf")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#dfe3e8",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.0,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "text.parse_math": False,
    "text.usetex": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "report",
    "hatch.linewidth": 0.5,
}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}
_HATCHES = ("", "//////", "......")
"""Hatches of bar parts, to distinguish them in grayscale; white on the part's color."""
_DASHES = ("-", "-.", ":")
"""Line styles of curves, to distinguish them in grayscale; the Pareto front is dashed."""
_LONGEST_LABEL = 40
"""Maximum label length in characters, to leave room for the plot."""


def check_installed() -> None:
    """Raise WarehouseError if matplotlib is not installed."""
    try:
        import matplotlib as matplotlib  # only checks that it can be imported
    except ImportError as error:
        remedy = "pip install 'speculative-reasoning-harness[figures]'"
        raise WarehouseError(f"--figures requires matplotlib: {remedy}") from error


def write_charts(charts: Mapping[str, Chart], folder: Path) -> list[Path]:
    """Write each chart as SVG and PDF to a folder and return the files.

    charts: by file name without extension. The folder is created if needed; existing files are replaced. Raises
    WarehouseError if matplotlib is not installed, and OSError.
    """
    check_installed()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    # Suppress messages about the font cache and missing glyphs.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    files = []
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, chart in charts.items():
            figure = Figure(figsize=(COLUMN_INCHES, 2.2), layout="constrained")
            _draw(chart, figure)
            for ending in ENDINGS:
                file = folder / f"{name}.{ending}"
                # Omit the date, for reproducible files.
                figure.savefig(file, metadata={"Date" if ending == "svg" else "CreationDate": None})
                files.append(file)
    return files


def _draw(chart: Chart, figure: Figure) -> None:
    axes = figure.subplots()
    if isinstance(chart, Dots):
        _dots(chart, figure, axes)
    elif isinstance(chart, Scatter):
        _scatter(chart, figure, axes)
    elif isinstance(chart, StackedBars):
        _bars(chart, figure, axes)
    else:
        raise TypeError(f"{type(chart).__name__} cannot be exported as SVG and PDF")


def _dots(chart: Dots, figure: Figure, axes: Axes) -> None:
    figure.set_figheight(0.55 + 0.2 * len(chart.rows))
    for row, dot in enumerate(chart.rows):
        axes.errorbar(dot.x.estimate, row, xerr=_error(dot.x), capsize=2, **_look(dot.look))
    for reference in chart.references:
        axes.axvline(reference.value, color="#5c6570", linewidth=0.7, linestyle="--" if reference.is_dashed else "-")
    scale = chart.scale(0, 1)
    axes.set_xlim(scale.low, scale.high)
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.set_yticks(range(len(chart.rows)), [_label(dot.label) for dot in chart.rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(_label(chart.axis))
    axes.grid(axis="x")


def _scatter(chart: Scatter, figure: Figure, axes: Axes) -> None:
    from matplotlib.patheffects import withStroke

    connected = {i for curve in chart.curves for i in curve.points}
    for i, (p, look) in enumerate(zip(chart.points, chart.looks, strict=True)):
        assert p.y is not None
        errors = {"xerr": _error(p.x), "yerr": _error(p.y), "elinewidth": 0.6 if chart.curves else 1.1}
        label = None if i in connected else _label(p.label)
        axes.errorbar(p.x.estimate, p.y.estimate, **errors, label=label, capsize=2, **_look(look))
    for number, curve in enumerate(chart.curves):
        places = chart.places(curve.points)
        own = _look(chart.look(curve))
        dashes = _DASHES[number % len(_DASHES)]
        axes.plot(*zip(*places, strict=True), **own, linestyle=dashes, label=_label(curve.label))
        for place, value in zip(places, curve.values, strict=False):
            beside = {
                "textcoords": "offset points",
                "ha": "right",
                "path_effects": [withStroke(linewidth=1.5, foreground="white")],
            }
            axes.annotate(_label(value), place, (-3, 2.5), color=own["color"], **beside)
    axes.set_xlim(left=0)
    if chart.front:
        axes.autoscale(enable=False)
        places = chart.places(chart.front)
        (first, _), (_, highest) = places[0], places[-1]
        steps = [(first, axes.get_ylim()[0]), *places, (axes.get_xlim()[1], highest)]
        front = {"color": "#5c6570", "linewidth": 0.8, "linestyle": "--", "label": "Pareto front"}
        axes.step(*zip(*steps, strict=True), where="post", zorder=1, **front)
    axes.set_xlabel(_label(chart.x_axis))
    axes.set_ylabel(_label(chart.y_axis))
    axes.grid()
    _legend(figure, axes, [*(label for _, label in chart.key), *(["Pareto front"] if chart.front else [])])


def _error(x: Interval) -> list[list[float]] | None:
    """Return the distances from the value to the interval ends."""
    return None if x.low is None or x.high is None else [[x.estimate - x.low], [x.high - x.estimate]]


def _bars(chart: StackedBars, figure: Figure, axes: Axes) -> None:
    places, place = [], 0.0
    for i, bar in enumerate(chart.bars):
        place += 0.0 if not i else 1.4 if bar.opens_group else 1.0
        places.append(place)
    figure.set_figheight(0.85 + 0.16 * (places[-1] + 1))
    done = [0.0] * len(chart.bars)
    for number, kind in enumerate(chart.kinds):
        amounts = [max(0.0, bar.parts.get(kind, 0.0)) for bar in chart.bars]
        look = {"color": _colors()[kind], "hatch": _HATCHES[number % len(_HATCHES)]}
        axes.barh(places, amounts, 0.8, done, **look, edgecolor="white", linewidth=0.4, label=_label(chart.names[kind]))
        done = [before + amount for before, amount in zip(done, amounts, strict=True)]
    for y, end, bar in zip(places, done, chart.bars, strict=True):
        axes.annotate(_label(bar.value_text), (end, y), (2, 0), textcoords="offset points", va="center", fontsize=6)
    axes.set_xlim(0, 1.12 * max(done))
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.set_yticks(places, [_label(bar.label) for bar in chart.bars])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(_label(chart.axis))
    axes.grid(axis="x")
    _legend(figure, axes, [chart.names[kind] for kind in chart.kinds])


def _legend(figure: Figure, axes: Axes, labels: Sequence[str]) -> None:
    """Draw the legend above the axes, with as many columns as fit the longest label."""
    longest = max(len(_label(label)) for label in labels)
    columns = max(1, min(len(labels), 54 // (longest + 6)))
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + 0.14 * (-(-len(labels) // columns) - 1))


def _look(look: Look) -> dict[str, str]:
    """Return matplotlib's color and marker options for a run, as in `charts.mark`."""
    color = _colors()[f"s{look.color}"]
    return {"color": color, "marker": _MARKERS[look.shape], "markerfacecolor": "white" if look.is_hollow else color}


def _label(text: str) -> str:
    """Return a label without control characters, truncated to _LONGEST_LABEL."""
    harmless = printable(text)
    return harmless if len(harmless) <= _LONGEST_LABEL else f"{harmless[: _LONGEST_LABEL - 1]}…"


@cache
def _colors() -> dict[str, str]:
    """Return the colors of the page's light scheme by name."""
    css = (resources.files("warehouse.report") / "page" / "report.css").read_text(encoding="utf-8")
    [light, *_] = css.split("@media")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
