"""Three loaded runs: speculative and vanilla one sample at a time, and an empty limited one. And one to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.trace import Trace
from jobs.run.folder import RunFolder
from tests.shared import known
from tests.warehouse import runs
from tests.warehouse.made_up_databases import MADE_UP, Made
from warehouse.database import Connection, reader, rows
from warehouse.loading.runs import load_run, load_runs

LATENCIES = [20.0, 30.0, 40.0, 24.0, 30.0, 36.0]


@dataclass
class Loaded:
    """Run folders, what was written into them, and the database made of them."""

    database: Path
    speculative: RunFolder
    traces: list[Trace]
    vanilla: RunFolder
    baseline: list[Trace]
    limited: RunFolder


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    where = tmp_path_factory.mktemp("runs")
    database = where / "warehouse.duckdb"
    speculative, traces = _speculative(where)
    vanilla = runs.create(where, runs.VANILLA)
    timed = enumerate(zip(runs.planned(vanilla), LATENCIES, strict=True))
    baseline = [runs.vanilla(unit, 40 + i, seconds) for i, (unit, seconds) in timed]
    runs.write(vanilla, baseline, "correct")
    limited = runs.create(where, replace(runs.SPEC, num_problems=2, dataset_size=9, concurrency=8))
    list(load_runs([speculative, vanilla, limited], database))
    return Loaded(database, speculative, traces, vanilla, baseline, limited)


def _speculative(where: Path) -> tuple[RunFolder, list[Trace]]:
    """Five of six samples: one resumed, one cut off, one failed; the last one not run."""
    folder = runs.create(where)
    units = runs.planned(folder)
    traces = [
        runs.speculative(units[0], latency=10.0),
        runs.speculative(units[1], refused=True, latency=12.0),
        runs.ended(runs.speculative(units[2], latency=16.0), "budget"),
        runs.speculative(units[3], latency=100.0),
        runs.ended(runs.speculative(units[4], refused=True, latency=1.0), "error", "RequestRefused: too long"),
    ]
    traces[3].num_attempts = 2
    runs.write_part(folder, traces[:3], "a0")
    runs.write_part(folder, traces[3:], "a1")
    verdicts = ("correct", "wrong", "truncated", "correct")
    runs.write_grades(folder, dict(zip((t.sample_id for t in traces), verdicts, strict=False)))
    return folder, traces


class Ask:
    """Rows of a view for one run."""

    def __init__(self, connection: Connection, run: RunFolder | None = None) -> None:
        self.connection, self.run = connection, run

    def __call__(self, view: str, run: RunFolder | None = None, order: str = "ALL") -> list[dict[str, Any]]:
        run = known(run or self.run)
        sql = f"SELECT * EXCLUDE (run_id) FROM {view} WHERE run_id = $run_id ORDER BY {order}"
        return rows(self.connection, sql, {"run_id": run.path.name})


@contextmanager
def views(run: RunFolder, traces: Sequence[Trace] = (), verdicts: str | Sequence[str] | None = None) -> Iterator[Ask]:
    """Write traces of a run and their verdicts (as `runs.write` does) and load it, for questions about it."""
    if traces:
        runs.write(run, traces, verdicts)
    load_run(run, run.path.parent / "w.duckdb")
    with reader(run.path.parent / "w.duckdb") as connection:
        yield Ask(connection, run)


@pytest.fixture(scope="session")
def ask(loaded: Loaded) -> Iterator[Ask]:
    with reader(loaded.database) as connection:
        yield Ask(connection)


COUNTS = " UNION ALL ".join(
    f"SELECT '{table}' AS name, count(*) AS n FROM {table}"
    for table in ("run", "attempt", "problem", "sample", "step", "candidate", "call", "grade", "loaded_file")
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = runs.create(tmp_path)
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit) for unit in units[:2]], "a0")
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in units[:2]})
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "warehouse.duckdb"


def counts(database: Path) -> dict[str, int]:
    with reader(database) as connection:
        return dict(connection.execute(COUNTS).fetchall())


def value(database: Path, sql: str) -> object:
    with reader(database) as connection:
        [(value,)] = connection.execute(sql).fetchall()
    return value


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Make the databases of `MADE_UP` by name, each once; tests only read them."""
    known: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in known:
            where = tmp_path_factory.mktemp(name)
            known[name] = Made(where / "w.duckdb", MADE_UP[name](where))
            list(load_runs(known[name].folders, known[name].database))
        return known[name]

    return make
