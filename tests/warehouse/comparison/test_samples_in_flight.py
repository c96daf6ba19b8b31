"""Times of runs whose workers did not have as many samples in flight are not comparable, whatever the flag says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.warehouse import cells
from warehouse.database import Connection, reader
from warehouse.loading.runs import load_run, load_runs
from warehouse.sql.baselines import unlike
from warehouse.suites.measured import measure

FEW = replace(cells.VANILLA, concurrency=24, samples=2)
MANY = replace(cells.SPEC, concurrency=24, samples=6)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight samples of the target alone beside 24 of a method, both with --concurrency 24."""
    where = tmp_path_factory.mktemp("in-flight")
    list(load_runs([cells.finished(where, spec, [2] * 4) for spec in (FEW, MANY)], where / "w.duckdb"))
    return where / "w.duckdb"


@pytest.fixture
def connection(database: Path) -> Iterator[Connection]:
    with reader(database) as connection:
        yield connection


def test_latencies_of_workers_with_other_numbers_of_samples_have_no_ratio(connection: Connection) -> None:
    sql = "FROM run_conditions SELECT run_id, samples_in_flight, concurrency ORDER BY samples_in_flight"
    few, many = connection.execute(sql).fetchall()
    assert (few[1:], many[1:]) == ((8, 24), (24, 24))
    found = [connection.execute("FROM speed_up").fetchall(), measure(connection, "ratio_of_means", many[0], few[0])]
    assert found == [[], None]
    assert measure(connection, "ratio_of_means", many[0], many[0]) is not None


def test_a_published_ratio_of_two_concurrencies_is_not_refused_for_them() -> None:
    """As in SpecCoT's table 6, where the baseline has one sample in flight."""
    settings = ("target_server", "target_sampling", "target_template", "target_thinking_tags", "engine_target_memory")
    machine = ("device_kinds", "processors", "num_cards", "engine_kind", "engine_target_arguments")
    alike = dict.fromkeys(("dataset_hash", "top_p", "token_budget", "target_fingerprint", *settings, *machine), "same")
    alike |= dict.fromkeys(("engine_target_dtype", "engine_target_tensor_parallel"), "same")
    run = {**alike, "concurrency": 8, "samples_in_flight": 8}
    baseline = {**alike, "concurrency": 1, "samples_in_flight": 1}
    assert len(unlike(run, baseline)) == 2
    assert unlike(run, baseline, across_concurrencies=True) == []
    assert len(unlike(run, {**baseline, "device_kinds": "other"}, across_concurrencies=True)) == 1


def test_a_worker_with_several_shards_has_their_samples_in_flight(tmp_path: Path) -> None:
    """`--shards-per-task`: two shards of 12 samples in one worker."""
    folder = cells.finished(tmp_path, MANY, [2] * 4)
    whole = folder.shard(0)
    folder.assign_again([whole[:12], whole[12:]])
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        sql = "SELECT samples_in_flight, (SELECT count(DISTINCT shard) FROM sample) FROM run_conditions"
        [found] = connection.execute(sql).fetchall()
    assert found == (24, 2)
