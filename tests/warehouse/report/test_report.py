"""The report's numbers, its tables as text, and its size."""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from tests.warehouse.report.conftest import HOSTILE, report
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.report.facts import RunFacts, report_facts
from warehouse.report.sections import report_warnings

Written = Callable[..., Path]


def unpacked(page: Path, name: str) -> Any:
    [packed] = re.findall(f'<script type="text/plain" id="{name}">([^<]*)</script>', page.read_text())
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def facts_of(database: Path, *run_ids: str) -> list[RunFacts]:
    with reader(database) as connection:
        return report_facts(connection, run_ids)


def all_runs(loaded: Loaded) -> list[str]:
    return [loaded.speculative.path.name, loaded.vanilla.path.name, loaded.limited.path.name]


def test_a_start_of_an_engine_that_runs_share_counts_once_and_is_not_lost(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"

    def added(seed: int, starts: dict[str, tuple[str, float]], waited_seconds: float) -> str:
        folder = runs.create(tmp_path, spec=replace(runs.VANILLA, seed=seed))
        engines = {
            role: {"engine_start": name, "engine_start_seconds": seconds} for role, (name, seconds) in starts.items()
        } | {"startup_seconds": waited_seconds}
        traces = [runs.vanilla(unit) for unit in runs.planned(folder)]
        runs.write_part(folder, traces, started_at=runs.START + seed, engines=engines)
        load_run(folder, database)
        return folder.path.name

    def seconds(*run_ids: str) -> list[tuple[float, float]]:
        costs = [facts.costs[0] for facts in facts_of(database, *run_ids)]
        return [(round(3600 * cost.work_hours, 6), round(3600 * cost.start_hours, 6)) for cost in costs]

    second = added(2, {"target": ("start-1", 100.0), "draft": ("start-2", 10.0)}, waited_seconds=10.0)
    [alone] = seconds(second)
    first = added(1, {"target": ("start-1", 100.0)}, waited_seconds=100.0)
    last_call = 20.0 - 1
    assert alone == (last_call - 2, 110), "nobody else in the database has paid for it"
    assert seconds(first, second) == [(last_call - 1, 100), (last_call - 2, 10)]


def test_the_page_loads_nothing_from_outside(loaded: Loaded, written: Written) -> None:
    page = written(loaded.database, *all_runs(loaded)).read_text()
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href|action)\s*=\s*["']?(?!#)[^"'>\s]+""", own)
    assert not re.findall(r"@import|url\((?!data:)", own)
    assert "default-src 'none'; script-src 'sha256-" in html.unescape(page)
    # A script with one of these would not end where it seems to.
    assert page.count("<!--") == 0


def test_the_page_holds_every_trace_and_every_sample(loaded: Loaded, written: Written) -> None:
    page = written(loaded.database, *all_runs(loaded))
    index = unpacked(page, "index")
    assert [len(run["problem"]) for run in index["samples"]] == [6, 6, 4]
    traced = [sum(chunk >= 0 for chunk in run["chunk"]) for run in index["samples"]]
    assert traced == [len(loaded.traces), len(loaded.baseline), 0]
    trace = unpacked(page, "chunk-0")["0/0/0"]
    assert [step["author"] for step in trace["steps"]] == ["target", "draft", "target"]
    assert [candidate["accepted"] for candidate in trace["steps"][1]["candidates"]] == [True, False]
    assert trace["steps"][1]["verdicts"][0]["probabilities"] == [0.625, 0.25, 0.125]


def test_a_page_stays_within_its_size_and_reports_what_it_leaves_out(tmp_path: Path, written: Written) -> None:
    """Traces of random text cannot be compressed below the limit."""
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    draw = random.Random(0)
    traces = [runs.speculative(unit) for unit in runs.planned(folder)]
    for trace in traces:
        words = ["".join(draw.choices(string.ascii_letters, k=45_000)) for _ in range(6)]
        trace.steps = [replace(trace.steps[0], text=text) for text in words]
    load_run(runs.write(folder, traces, "correct"), database)
    whole = written(database, folder.path.name).read_text()
    part = written(database, folder.path.name, "--max-megabytes", "1.7")
    assert part.stat().st_size < 1_700_000 < len(whole)
    [(held, finished)] = re.findall(r"SAMPLED: \D*(\d+) of (\d+) ", part.read_text())
    assert (0 < int(held) < 6, finished) == (True, "6")
    [run] = unpacked(part, "index")["samples"]
    assert (len(run["chunk"]), sum(chunk >= 0 for chunk in run["chunk"])) == (6, int(held))


def test_a_run_without_grades_has_no_accuracy(loaded: Loaded, tmp_path: Path, written: Written) -> None:
    """Zero would pass for a result."""
    folder, database = runs.finished(tmp_path), tmp_path / "w.duckdb"
    load_run(folder, database)
    text = report(database, folder.path.name).stdout
    assert re.search(r"^\| speccot +\| +[0-9.]+ % \| +[0-9.]+ % \| +3 × 2 \(0 of 6\) \|$", text, re.M)
    page = written(database, folder.path.name).read_text()
    assert "NOT GRADED: 6 of 6" in page
    assert 'aria-label="Accuracy' not in page
    assert 'aria-label="Accuracy' in written(loaded.database, loaded.vanilla.path.name).read_text()


def test_the_main_table_says_what_its_intervals_assume_and_names_runs_by_their_labels(loaded: Loaded) -> None:
    own, base = facts_of(loaded.database, *all_runs(loaded)[:2])
    [results, *others] = report(loaded.database, *all_runs(loaded)[:2]).stdout.split("\n## ")[1:]
    for told in ("n × k: ", "Unfinished: ", f"COMPARED IN PART: {own.label} vs. {base.label}, pass@1: "):
        assert told in results
    assert not any("Unfinished: " in other for other in others)
    assert own.summary.run_id not in results


def test_a_run_with_two_warnings_of_one_kind_is_named_once(loaded: Loaded) -> None:
    told, quiet = facts_of(loaded.database, *all_runs(loaded)[:2])
    warnings = {"limited": False, "warnings": [f"SKIPPED FILE: {name} cannot be read: torn" for name in ("a", "b")]}
    runs_told = [
        replace(told, summary=told.summary.model_copy(update=warnings)),
        replace(quiet, summary=quiet.summary.model_copy(update={"limited": False, "warnings": []})),
    ]
    brief, lines = report_warnings(runs_told)
    assert (brief, len(lines)) == (f"Skipped file: {told.label}.", 2)


def test_a_very_long_text_is_cut_with_a_note(tmp_path: Path, written: Written) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text="x" * 60_000)])
    load_run(folder, database)
    text = unpacked(written(database, folder.path.name), "chunk-0")["0/0/0"]["steps"][1]["text"]
    assert (text.count("x"), "10000" in text) == (50_000, True)


def test_hostile_text_reaches_the_page_and_the_tables_neither_as_markup_nor_as_script(
    hostile: tuple[Path, Any], written: Written
) -> None:
    database, folder = hostile
    page = written(database, folder.path.name)
    assert "window.pwned = 1" not in page.read_text()
    assert not {"\u202e", "\x1b"} & set(page.read_text())
    step = unpacked(page, "chunk-0")["0/0/0"]["steps"][1]
    assert step["text"].startswith(HOSTILE)
    markdown = report(database, folder.path.name).stdout
    for text in (page.read_text(), markdown):
        assert ("<script>window.pwned = 4" in text, "&lt;script&gt;" in text) == (False, True)
    assert re.search(
        r"^\| speccot +\| +[0-9.]+ \([0-9.]+ to [0-9.]+\) \|.*\| +3 × 2 \(3 of 6\) \|$", markdown, re.MULTILINE
    )
    latex = report(database, folder.path.name, "--format", "latex").stdout
    assert latex.count(r"\toprule") == latex.count(r"\end{tabular}") > 4
    assert r"drafts 2, note \textless{}script\textgreater{}window.pwned" in latex
