"""The page: one file that needs nothing else.

No script but those whose hashes stand in the page's content security policy runs, and none may reach the network.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from warehouse.database import Connection
from warehouse.report.charts import svg
from warehouse.report.facts import Flips, RunFacts
from warehouse.report.figures import sections
from warehouse.report.samples import index, read_samples, viewing_order
from warehouse.report.tables import loud
from warehouse.report.traces import Chunks, pack, pack_traces

_HERE = Path(__file__).parent
_KATEX = _HERE / "vendor" / "katex"
_VIEWER = ("load.js", "math.js", "trace.js", "list.js")
_RESERVE_BYTES = 200_000
"""Kept free for the page's own text."""


def page(
    connection: Connection, runs: Sequence[RunFacts], flips: Sequence[Flips], title: str, max_bytes: int
) -> tuple[str, Chunks]:
    """The HTML, and the traces in it. It stays below max_bytes as long as the page without any trace does."""
    samples = read_samples(connection, runs)
    run_ids = [run.summary.run_id for run in runs]
    fixed = len(_styles()) + len(_katex_script()) + len(pack(index(samples, {}))) + _RESERVE_BYTES
    # Which chunk holds a trace adds to the index: at most about three bytes a sample.
    room = max_bytes - fixed - 3 * sum(map(len, samples.runs))
    chunks = pack_traces(connection, run_ids, samples, viewing_order(samples), room)
    content = index(samples, chunks.places)
    content["runs"] = [{"run_id": run.summary.run_id, "label": run.label} for run in runs]
    return _rendered(runs, flips, title, pack(content), chunks), chunks


def coverage(chunks: Chunks) -> str:
    """How many of the traces are in the file, and which."""
    held = len(chunks.places)
    if held == chunks.num_finished:
        return f"All {held:,} traces of finished samples are in this file."
    return (
        f"SAMPLED: {held:,} of {chunks.num_finished:,} traces of finished samples are in this file, to keep it "
        "small: of problems on which runs differ one right and one wrong sample, then the first sample of every "
        "problem, the second, and so on, problems in random order. Lists and numbers cover all samples; the other "
        "traces are in the warehouse."
    )


def _rendered(runs: Sequence[RunFacts], flips: Sequence[Flips], title: str, packed: str, chunks: Chunks) -> str:
    scripts = {
        "katex": _katex_script(),
        "viewer": "'use strict';\n" + "\n".join(_asset(f"viewer/{name}") for name in _VIEWER),
        "start": "'use strict';\n" + _asset("viewer/start.js"),
    }
    environment = Environment(
        loader=FileSystemLoader(_HERE / "page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["swatch"] = _swatch
    return environment.get_template("report.html.j2").render(
        title=title,
        subtitle=_subtitle(runs),
        runs=runs,
        flips=flips,
        sections=sections(runs, flips),
        warnings=loud(runs),
        limited=_limited(runs),
        coverage=coverage(chunks),
        policy=_policy(scripts.values()),
        styles=Markup(_styles()),
        index=packed,
        chunks=chunks.packed,
        **{name: Markup(script) for name, script in scripts.items()},
    )


def _subtitle(runs: Sequence[RunFacts]) -> str:
    datasets = sorted({run.summary.dataset for run in runs})
    loaded = max(run.conditions["loaded_at"] for run in runs)
    what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{what} on {', '.join(datasets)}. As loaded into the warehouse until {loaded:%Y-%m-%d %H:%M} UTC."


def _limited(runs: Sequence[RunFacts]) -> str:
    names = [run.label for run in runs if run.summary.limited]
    which = "all runs" if len(names) == len(runs) else ", ".join(names)
    return f"LIMITED, no benchmark result: {which}." if names else ""


def _policy(scripts: Iterable[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rest = "style-src 'unsafe-inline'; font-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def _swatch(place: int) -> Markup:
    return svg.tag("svg", svg.mark(8, 8, place, 5.5), viewBox="0 0 16 16", class_="swatch-mark", aria_hidden="true")


def _styles() -> str:
    katex = re.sub(r"src:url\(fonts/([\w-]+\.woff2)\)[^}]*", _inlined, (_KATEX / "katex.min.css").read_text("utf-8"))
    return "\n".join((katex, _asset("page/report.css"), _asset("viewer/viewer.css")))


def _inlined(found: re.Match[str]) -> str:
    font = base64.b64encode((_KATEX / "fonts" / found[1]).read_bytes()).decode("ascii")
    return f'src:url(data:font/woff2;base64,{font}) format("woff2")'


def _katex_script() -> str:
    return f"/* KaTeX. {_asset('vendor/katex/LICENSE')} */\n{_asset('vendor/katex/katex.min.js')}"


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
