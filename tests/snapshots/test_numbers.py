"""Every number that a command computes from the recorded runs, with all of its digits."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.snapshots.corpus import DATES, EARLY, Corpus
from tests.snapshots.values import Names, Numbers
from warehouse.database import Connection, rows

ROOT = Path(__file__).parents[2]
DOCUMENTED = [
    (sentence.strip(), sql)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for sentence, sql in re.findall(r"([^\n]*)\n\n```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
]
"""Every SQL query in the documentation, behind its sentence."""
NOT_RECORDED = {
    "loaded_file",  # sizes and digests of files
    "schema_version",
    "run_code",  # which code worked on a run
    "stopwatch", "measure",  # texts
    "run_stopwatch", "problem_stopwatch",  # the papers' clocks
}  # fmt: skip
_OWN_QUERIES = {  # without the time that grading took
    name: f"SELECT * EXCLUDE (seconds) FROM {name}" for name in ("grade", "second_grade")
} | {"estimate": "SELECT * EXCLUDE (id) FROM estimate", "interval": "SELECT * EXCLUDE (estimate) FROM interval"}
"""Without ids, which are hashes."""


@pytest.fixture(scope="module")
def names(corpus: Corpus) -> Names:
    return corpus.known_names()


@pytest.fixture(scope="module")
def warehouse(corpus: Corpus) -> Iterator[Connection]:
    with corpus.opened(corpus.where / "runs" / "warehouse.duckdb") as connection:
        yield connection


@pytest.fixture
def numbers(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Numbers)


def test_rows_of_tables_and_views(warehouse: Connection, names: Names, numbers: SnapshotAssertion) -> None:
    relations = rows(
        warehouse,
        "SELECT table_name AS name FROM duckdb_tables() WHERE NOT internal UNION ALL BY NAME "
        "SELECT view_name AS name FROM duckdb_views() WHERE NOT internal",
    )
    found = sorted({str(row["name"]) for row in relations} - NOT_RECORDED)
    recorded = {name: names.rows(rows(warehouse, _OWN_QUERIES.get(name, f'FROM "{name}"'))) for name in found}
    differing = [name for name, values in recorded.items() if numbers(name=name) != values]
    assert not differing


def test_documented_queries(warehouse: Connection, names: Names, numbers: SnapshotAssertion) -> None:
    assert len(DOCUMENTED) > 25
    found = {
        f"{sentence} ({number})": names.rows(rows(warehouse, sql)) for number, (sentence, sql) in enumerate(DOCUMENTED)
    }
    assert found == numbers


def test_bundled_queries(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    listed = corpus.run("warehouse.query", "--list", "--database", "runs/warehouse.duckdb").output
    found = {}
    for name in ("hardest_problems", "results", "right_refusals", "steps_to_score", "unsure_verdicts"):
        assert name in listed
        printed = corpus.run("warehouse.query", "--name", name, "--json", "--database", "runs/warehouse.duckdb").stdout
        found[name] = names.rows(json.loads(printed))
    assert found == numbers


def test_results_of_runs(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    paths = sorted(corpus.where.glob("*/*/results.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    assert {row["run_id"]: [row] for row in names.rows_in_full(found)} == numbers


BASE = "vanilla own 6x2 4 in flight"
COMPARISONS = {
    "several samples": (
        ("speccot own 6x2 4 in flight", "specreason own 6x2 4 in flight", "vanilla draft own 6x2 4 in flight"),
        ("--k", "1,2", "--maj"),
    ),
    "timing samples": (("vanilla own 6x3 4 in flight", "speccot own 6x3 4 in flight"), ("--margin", "5")),
    "unequal samples": (("specreason own 6x2 4 in flight errors", "speccot own 6x3 4 in flight died"), ("--force",)),
    "one in flight": (("vanilla own 4x1 1 in flight", "speccot own 4x1 1 in flight"), ()),
}


@pytest.mark.parametrize("kind", COMPARISONS)
def test_compare(kind: str, corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    labels, words = COMPARISONS[kind]
    runs = [corpus.folder(label) for label in (BASE, *labels)]
    found = json.loads(corpus.run("warehouse.compare", *runs, *words, "--json").stdout)
    assert names.replaced(found) == numbers


def test_plan(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    runs = [corpus.folder(label) for label in (BASE, "speccot own 6x2 4 in flight")]
    found = json.loads(corpus.run("warehouse.plan", *runs, "--json").stdout)
    assert names.replaced(found) == numbers


def test_probed(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    found = {
        names.replaced(Path(run).name): [json.loads(corpus.run("warehouse.probed", run, "--json").stdout)]
        for run in corpus.folders("probe")
    }
    assert names.replaced(found) == numbers


def test_nights(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    database = "nights/warehouse.duckdb"
    with corpus.opened(corpus.where / database) as connection:
        of_early = "FROM counted_estimate WHERE run_id IN (SELECT run_id FROM run WHERE tag <= $last)"
        found = {"estimates": names.rows(rows(connection, of_early, {"last": DATES[EARLY - 1]}))}
    for night in DATES:
        words = ("--night", night, "--database", database, "--json")
        found[night] = [names.replaced(json.loads(corpus.run("warehouse.nightly", *words, exit_code=None).stdout))]
    assert found == numbers


def test_table_of_a_suite(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    printed = corpus.run("harness.reproduce", "regimes.toml", "--table", "--format", "csv").stdout
    table = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(printed.splitlines())]
    assert names.replaced({"table": table}) == numbers


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def test_status(corpus: Corpus, names: Names, numbers: SnapshotAssertion) -> None:
    listed = json.loads(corpus.run("jobs list", "runs", "--json").stdout)
    assert {"runs": names.rows_in_full(listed)} == numbers
