"""Write a report on runs: an HTML page, or its tables as Markdown or LaTeX."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.cli.messages import counted
from harness.cli.screen import Line, printable
from warehouse.comparison.contrasts import Settings
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.outcomes import resolve
from warehouse.database import WAIT_SECONDS, Connection, reader
from warehouse.options import ReportFormat
from warehouse.report.charts import Chart, Look, mark, tag
from warehouse.report.facts import RunFacts, report_facts
from warehouse.report.sections import RunTable, Section, read_comparison, report_warnings, sections
from warehouse.report.tables import LATEX_NEEDS, latex, latex_text, markdown, markdown_text
from warehouse.report.traces import Chunks, index, pack, pack_traces, read_samples, viewing_order

MAX_MEGABYTES = 19.0
"""Default size limit of the HTML page."""
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Report:
    """A generated report."""

    content: str
    coverage: str
    """Sentence on the traces in the page; for other formats, the number of tables."""
    charts: Mapping[str, Chart]
    """Charts by file name without extension."""

    def write(self, path: Path) -> str:
        """Write the report to a file and return a one-line description. Raises OSError."""
        path.write_text(self.content, encoding="utf-8")
        return f"{path}: {len(self.content.encode()) / _MEGABYTE:.1f} MB. {self.coverage}"


def make_report(
    runs: Sequence[str],
    database: Path,
    output_format: ReportFormat = "html",
    *,
    title: str | None = None,
    max_megabytes: float = MAX_MEGABYTES,
    settings: Settings | None = None,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Report:
    """Create a report on runs of a database.

    runs: run ids, prefixes of run ids, or run folders. max_megabytes: maximum size of the HTML page; traces that do
    not fit are omitted. settings, baseline: options of the comparison, as in `compare_runs`.
    Raises WarehouseError and DatabaseError.
    """
    with reader(database, wait_seconds, grader) as connection:
        run_ids = list(dict.fromkeys(resolve(connection, run) for run in runs))
        facts = report_facts(connection, run_ids)
        titles = sorted({run.conditions["dataset_title"] or run.summary.dataset for run in facts})
        title = title or f"Speculative reasoning on {', '.join(titles)}"
        baseline_id = resolve(connection, baseline) if baseline else None
        compared = read_comparison(connection, run_ids, settings or Settings(), baseline_id)
        contents = sections(facts, compared, read_manifests(connection, run_ids))
        charts = {figure.name: figure.chart for section in contents for figure in section.figures}
        brief, warnings = report_warnings(facts)
        if output_format != "html":
            tables = [table for section in contents for table in section.tables]
            return Report(document(title, warnings, tables, output_format), f"{len(tables)} tables", charts)
        content, chunks = page(connection, facts, contents, (brief, warnings), title, int(max_megabytes * _MEGABYTE))
        return Report(content, coverage(chunks), charts)


_HERE = resources.files("warehouse.report")
_KATEX = _HERE / "vendor" / "katex"
_VIEWER = ("load.js", "math.js", "trace.js", "list.js", "search.js", "link.js", "copy.js", "tables.js", "tabs.js")
_RESERVE_BYTES = 200_000
"""Bytes reserved for the text outside the traces."""


def page(
    connection: Connection,
    runs: Sequence[RunFacts],
    sections: Sequence[Section],
    warnings: tuple[str, Sequence[str]],
    title: str,
    max_bytes: int,
) -> tuple[str, Chunks]:
    """Return the HTML and its traces. The page exceeds max_bytes only if it would do so even without traces."""
    samples = read_samples(connection, runs)
    run_ids = [run.summary.run_id for run in runs]
    fixed = len(_styles()) + len(_katex_script()) + len(pack(index(samples, {}))) + _RESERVE_BYTES
    # The index also stores the chunk of each trace, in at most about three bytes per sample.
    room = max_bytes - fixed - 3 * sum(map(len, samples.runs))
    chunks = pack_traces(connection, run_ids, samples, viewing_order(samples), room)
    content = index(samples, chunks.places)
    content["runs"] = [{"run_id": run.summary.run_id, "label": run.label} for run in runs]
    scripts = {
        "katex": _katex_script(),
        "viewer": "'use strict';\n" + "\n".join(_asset(f"viewer/{name}") for name in _VIEWER),
        "start": "'use strict';\n" + _asset("viewer/start.js"),
    }
    environment = Environment(
        loader=PackageLoader("warehouse.report", "page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["swatch"] = _swatch
    html = environment.get_template("report.html.j2").render(
        title=title,
        subtitle=_subtitle(runs),
        runs=runs,
        sections=sections,
        warnings=warnings,
        coverage=coverage(chunks),
        options=_options(connection),
        policy=_policy(scripts.values()),
        styles=Markup(_styles()),
        index=pack(content),
        chunks=chunks.packed,
        **{name: Markup(script) for name, script in scripts.items()},
    )
    return printable(html, keep="\n\t"), chunks


def coverage(chunks: Chunks) -> str:
    """Return sentences on which traces the page contains."""
    num_included = len(chunks.places)
    if num_included == chunks.num_finished:
        return f"This file contains all {num_included:,} traces of finished samples."
    return (
        f"SAMPLED: This file contains {num_included:,} of {chunks.num_finished:,} traces of finished samples, to limit "
        "its size. Included first: a correct and a wrong sample of each problem on which runs differ; then the first "
        "sample of each problem, the second, and so on, with problems in random order. Lists and metrics cover all "
        "samples."
    )


def _options(connection: Connection) -> str:
    """Return the options that select this database and grader in commands.

    The file name has no folder, because pages are shared.
    """
    [(path, version)] = connection.execute(
        "SELECT path, getvariable('grader_version') FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchall()
    grader = f" --grader {quote(version)}" if version else ""
    return f" --database {quote(Path(path).name)}{grader}"


def _subtitle(runs: Sequence[RunFacts]) -> str:
    loaded = max(run.conditions["loaded_at"] for run in runs)
    datasets = ", ".join(sorted({run.summary.dataset for run in runs}))
    when = f"{loaded:%Y-%m-%d at %H:%M} UTC"
    return f"{counted(len(runs), 'run')} on {datasets}, last loaded on {when}."


def _policy(scripts: Iterable[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rest = "style-src 'unsafe-inline'; font-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def _swatch(look: Look) -> Markup:
    return tag("svg", mark(8, 8, look, 5.5), viewBox="0 0 16 16", class_="swatch-mark", aria_hidden="true")


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


TextFormat = Literal["md", "latex"]


def document(title: str, warnings: Sequence[str], tables: Sequence[RunTable], shape: TextFormat) -> str:
    """Return all tables as one document, with the warnings first."""
    if shape == "md":
        return f"# {markdown_text(title)}\n\n{markdown([*(Line(line, 'bold') for line in warnings), *tables])}"
    head = [f"% {printable(title)}; {LATEX_NEEDS}", *(f"\\textbf{{{latex_text(line)}}}\n" for line in warnings)]
    return "\n\n".join([*head, *map(_latex_table, tables)]) + "\n"


def _latex_table(table: RunTable) -> str:
    return latex([replace(table, title="")], " ".join((f"{table.title}.", *table.notes)), table.name)
