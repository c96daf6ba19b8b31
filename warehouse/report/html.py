"""The HTML page, a single file without external resources.

Its content security policy allows only the scripts whose hashes it lists, and no network access.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.plural import counted
from warehouse.database import Connection
from warehouse.report.charts import svg
from warehouse.report.facts import Flips, RunFacts
from warehouse.report.problem_sets import titled_datasets
from warehouse.report.samples import index, read_samples, viewing_order
from warehouse.report.section import Section
from warehouse.report.tables import report_warnings
from warehouse.report.traces import Chunks, pack, pack_traces

_HERE = Path(__file__).parent
_KATEX = _HERE / "vendor" / "katex"
_VIEWER = ("load.js", "math.js", "trace.js", "list.js", "search.js", "link.js", "copy.js", "tables.js")
_RESERVE_BYTES = 200_000
"""Room reserved for the page's own text."""


def page(
    connection: Connection,
    runs: Sequence[RunFacts],
    flips: Sequence[Flips],
    sections: Sequence[Section],
    title: str,
    max_bytes: int,
) -> tuple[str, Chunks]:
    """Return the HTML and the traces in it; it stays below max_bytes as long as the page without traces does."""
    samples = read_samples(connection, runs)
    run_ids = [run.summary.run_id for run in runs]
    fixed = len(_styles()) + len(_katex_script()) + len(pack(index(samples, {}))) + _RESERVE_BYTES
    # The index also stores the chunk of each trace, in at most about three bytes per sample.
    room = max_bytes - fixed - 3 * sum(map(len, samples.runs))
    chunks = pack_traces(connection, run_ids, samples, viewing_order(samples), room)
    content = index(samples, chunks.places)
    content["runs"] = [{"run_id": run.summary.run_id, "label": run.label} for run in runs]
    return _rendered(runs, flips, sections, title, pack(content), chunks, _options(connection)), chunks


def coverage(chunks: Chunks) -> str:
    """Return how many and which of the traces are in the file."""
    num_included = len(chunks.places)
    if num_included == chunks.num_finished:
        return f"This file contains all {num_included:,} traces of finished samples."
    return (
        f"SAMPLED: This file contains {num_included:,} of {chunks.num_finished:,} traces of finished samples, to limit "
        "its size. A right and a wrong sample of each problem on which runs differ come first, then the first sample "
        "of every problem, then the second, and so on, with the problems in random order. Lists and numbers cover all "
        "samples. The other traces are in the warehouse."
    )


def _rendered(
    runs: Sequence[RunFacts],
    flips: Sequence[Flips],
    sections: Sequence[Section],
    title: str,
    packed: str,
    chunks: Chunks,
    options: str,
) -> str:
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
        sections=sections,
        warnings=[*report_warnings(runs), *(line for section in sections for line in section.warnings)],
        limited=_limited(runs),
        coverage=coverage(chunks),
        options=options,
        policy=_policy(scripts.values()),
        styles=Markup(_styles()),
        index=packed,
        chunks=chunks.packed,
        **{name: Markup(script) for name, script in scripts.items()},
    )


def _options(connection: Connection) -> str:
    """Return the options of commands for this database: the name of its file, because a page is passed on."""
    [(path, version)] = connection.execute(
        "SELECT path, getvariable('grader_version') FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchall()
    grader = f" --grader {quote(version)}" if version else ""
    return f" --database {quote(Path(path).name)}{grader}"


def _subtitle(runs: Sequence[RunFacts]) -> str:
    loaded = max(run.conditions["loaded_at"] for run in runs)
    when = f"{loaded:%Y-%m-%d at %H:%M} UTC"
    return (
        f"{counted(len(runs), 'run')} on {', '.join(titled_datasets(runs))}, last loaded into the warehouse on {when}."
    )


def _limited(runs: Sequence[RunFacts]) -> str:
    labels = [run.label for run in runs if run.summary.limited]
    names = "all runs" if len(labels) == len(runs) else ", ".join(labels)
    return f"LIMITED, not a benchmark result: {names}." if labels else ""


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


def _inlined(source: re.Match[str]) -> str:
    font = base64.b64encode((_KATEX / "fonts" / source[1]).read_bytes()).decode("ascii")
    return f'src:url(data:font/woff2;base64,{font}) format("woff2")'


def _katex_script() -> str:
    return f"/* KaTeX. {_asset('vendor/katex/LICENSE')} */\n{_asset('vendor/katex/katex.min.js')}"


def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
