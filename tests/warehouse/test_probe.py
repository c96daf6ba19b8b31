"""What a probe found stands in the database once, and the command and the report print the same numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.__main__ import main as jobs
from jobs.continuations.probe import draw
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from warehouse import estimates
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.probed import main, oracle


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run = plan(folder, method="specreason", samples=4)
    run_shard(str(run.path), 0)
    load_run(run, folder / "warehouse.duckdb")
    words = ["probe", str(run.path), "--cluster", "debug", "--points", "24", "--rollouts", "2"]
    assert CliRunner().invoke(jobs, words).exit_code == 0
    return folder / "warehouse.duckdb"


def printed(database: Path, *words: str) -> str:
    found = CliRunner().invoke(main, [*words, "--database", str(database)], env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_prints_the_rates_of_the_table_estimate(database: Path) -> None:
    [probe] = database.parent.glob("probe-*")
    found = json.loads(printed(database, probe.name, "--json"), parse_constant=pytest.fail)  # NaN is not JSON
    with reader(database) as connection:
        sql = "SELECT count(*) FROM estimate WHERE run_id = ? AND measure LIKE 'probe_%'"
        [(number,)] = connection.execute(sql, [probe.name]).fetchall()
    assert found["num_points"] == found["num_known"] == 24
    assert len(found["estimates"]) == number > 4
    assert max(map(len, printed(database, probe.name).splitlines())) <= 80


def test_the_oracle_stands_beside_the_judge_and_either_model(snapshot: SnapshotAssertion) -> None:
    worths = {"worth": 0.7, "worth_of_drafts": 0.5, "worth_of_judge": 0.6, "worth_of_target": 0.65}
    rows = [
        {"metric": f"probe_oracle_{name}", "estimate": value, "low_95": value - 0.1, "high_95": value + 0.1}
        for name, value in {**worths, "escalated": 0.3, "over_judge": 0.1}.items()
    ]
    assert list(oracle({"estimates": rows})) == snapshot
    assert list(oracle({"estimates": [{**row, "estimate": None} for row in rows]})) == ["Oracle: –."]


def test_decisions_that_end_the_reply_are_stored_with_the_probe(database: Path) -> None:
    [folder] = database.parent.glob("probe-*")
    [source] = database.parent.glob("demo-specreason-*")
    number = draw(RunFolder(source), 24, 0)[1].num_ending
    assert number > 0
    assert json.loads(printed(database, folder.name, "--json"))["num_ending"] == number
    assert f"{number} decisions" in " ".join(printed(database, folder.name).split())
    with reader(database) as connection:
        stored = connection.execute("SELECT DISTINCT num_ending FROM probe").fetchall()
    assert stored == [(number,)]


def test_thresholds_near_each_other_have_names_of_their_own_that_say_all_of_them() -> None:
    ratings = np.array([0.9491, 0.99954, 0.999961, 0.9999991, 0.99999997])
    found = estimates.of_numbers(ratings)
    assert len({f"{threshold:g}" for threshold in found}) == len(found) > 3
    assert [float(f"{threshold:g}") for threshold in found] == found
    assert [f"{threshold:g}" for threshold in estimates.of_numbers(np.linspace(-1, 1, 5))] == [
        "-0.8",
        "-0.5",
        "0",
        "0.5",
        "0.8",
    ]
