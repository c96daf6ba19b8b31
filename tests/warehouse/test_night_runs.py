"""Which runs of a warehouse make a night: conditions, order, metrics, and the baseline of a speed-up."""

from __future__ import annotations

import json
import math
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from junitparser import Failure, JUnitXml
from syrupy.assertion import SnapshotAssertion

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.shared import known
from tests.warehouse import cells, runs
from warehouse.database import reader, rows
from warehouse.load import main as load
from warehouse.loading.runs import load_run, load_runs
from warehouse.nightly.__main__ import main
from warehouse.nightly.history import keep_nights, kept_nights, read_nights
from warehouse.nightly.judge import CellNight

DAY = 86_400.0
CALM = [3, 4, 4, 4, 2, 3, 4, 4, 4, 3, 4, 3]
BAD = [1, 1, 2, 1, 0, 1, 2, 1, 1, 1, 2, 1]


def add(
    where: Path, day: int, correct: Sequence[int], suffix: str = "", spec: RunSpec = cells.SPEC, **more: Any
) -> str:
    """Load a run of the night of a day; returns its id."""
    folder = made(where, day, correct, suffix, spec, **more)
    load_run(folder, where / "w.duckdb")
    return folder.path.name


def made(
    where: Path, day: int, correct: Sequence[int], suffix: str = "", spec: RunSpec = cells.SPEC, **more: Any
) -> RunFolder:
    tagged = replace(spec, seed=day, tag=f"2026-01-{day:02}{suffix}")
    started_at = runs.START + day * DAY + more.pop("late", 0.0)
    return cells.finished(where, tagged, correct, started_at=started_at, **more)


def nights_of(where: Path) -> list[list[CellNight]]:
    with reader(where / "w.duckdb") as connection:
        return read_nights(connection)


def judged(where: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["--database", str(where / "w.duckdb"), "--format", "json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def test_a_night_pairs_its_runs_with_its_own_target_alone_only(tmp_path: Path) -> None:
    """Vanilla takes 20 s and 40 s in two nights; the method always 10 s."""
    alone = [made(tmp_path, day, CALM, spec=cells.VANILLA, latency=20.0 * day) for day in (1, 2)]
    own = [made(tmp_path, day, CALM, suffix, latency=10.0) for day, suffix in ((1, ""), (2, ""), (2, ".confirm"))]
    list(load_runs([*alone, *own], tmp_path / "w.duckdb"))
    methods = [folder.path.name for folder in own]
    with reader(tmp_path / "w.duckdb") as connection:
        pairs = rows(connection, "SELECT run_id, round(speed_up, 6) AS speed_up FROM speed_up ORDER BY run_id")
    assert pairs == [{"run_id": run, "speed_up": ratio} for run, ratio in sorted(zip(methods, (2, 4, 4), strict=True))]
    of_method = [cell for night in nights_of(tmp_path) for cell in night if cell.baseline is not None]
    found = [math.exp(cell.first.values["speed_up"]) for cell in of_method]
    assert found == pytest.approx([2, 4])
    assert {cell.baseline for cell in of_method} == {cell.cell for cell in nights_of(tmp_path)[0] if not cell.baseline}


def test_verdicts_are_the_same_to_the_last_digit_when_the_folders_of_nights_are_gone(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    old = [
        made(tmp_path, day, CALM[day:] + CALM[:day], spec=spec, latency=3 + day % 3 + len(spec.method))
        for day in range(1, 9)
        for spec in (cells.SPEC, cells.VANILLA)
    ]
    new = [made(tmp_path, 9, BAD, suffix) for suffix in ("", ".confirm")]
    list(load_runs([*old, *new], database))
    before = judged(tmp_path)
    assert before[0] == 1
    for _ in range(2):
        keep_nights(database)
    lines = database.with_suffix(".nights.jsonl")
    assert len(kept_nights(database)) == lines.read_text().count('"cell"') == 17, "what is there is not written again"

    for run in old:
        shutil.rmtree(run.path)
    done = CliRunner().invoke(load, [str(tmp_path), "--database", str(database), "--rebuild"])
    assert done.exit_code == 0, done.output
    with reader(database) as connection:
        assert {row["run_id"] for row in rows(connection, "FROM run")} == {run.path.name for run in new}
    assert judged(tmp_path) == before

    add(tmp_path, 9, CALM)
    keep_nights(database)
    [*_, newest] = kept_nights(database)
    assert newest.first.values["pass_at_1"] == sum(CALM) / 48, "the newest line of a night counts"


@pytest.fixture(scope="module")
def loaded_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nights")
    nights = [made(where, day, [*CALM[:-3], 3 + day % 2, 4, 3]) for day in range(1, 9)]
    list(load_runs(nights, where / "w.duckdb"))
    return where


@pytest.fixture
def eight_nights(tmp_path: Path, loaded_nights: Path) -> Path:
    """Eight calm nights in a warehouse of the test's own."""
    shutil.copy(loaded_nights / "w.duckdb", tmp_path)
    return tmp_path


def test_a_warehouse_of_nights_is_judged_screened_and_confirmed(eight_nights: Path) -> None:
    assert judged(eight_nights)[0] == 0
    run_id = add(eight_nights, 9, BAD)
    code, verdict = judged(eight_nights)
    assert (code, verdict["verdict"], verdict["confirm"]) == (4, "INCONCLUSIVE", [run_id])
    add(eight_nights, 9, BAD, ".confirm")
    code, verdict = judged(eight_nights)
    assert (code, verdict["verdict"], verdict["confirm"]) == (1, "FAIL", [])
    [cell] = verdict["cells"]
    assert cell["num_baseline_nights"] == 8

    file = eight_nights / "night.xml"
    words = ["--database", str(eight_nights / "w.duckdb"), "-o", str(file)]
    assert CliRunner().invoke(main, words).exit_code == 1
    [suite] = JUnitXml.fromfile(str(file))
    assert [case.name for case in suite] == ["verdict", *(metric["name"] for metric in cell["metrics"])]
    assert {case.classname for case in suite} == {cell["cell"]}
    [failure] = next(iter(suite)).result
    assert (type(failure), failure.text) == (Failure, "\n".join(cell["reasons"]))
    assert (suite.failures, suite.errors, suite.skipped) == (1, 0, 0)
    properties = {found.name: found.value for found in suite.properties()}  # type: ignore[no-untyped-call]
    assert properties == {"night": verdict["night"], "verdict": "FAIL", "exit_code": "1"}


def test_an_older_night_can_be_judged_again_and_nights_can_be_forgotten(eight_nights: Path) -> None:
    add(eight_nights, 9, [0] * 12, has_grade=lambda problem, sample: problem > 0)
    assert judged(eight_nights, "--night", "2026-01-08")[0] == 0
    code, verdict = judged(eight_nights, "--since", "2026-01-09")
    [cell] = verdict["cells"]
    assert (code, cell["num_baseline_nights"]) == (4, 0)
    assert cell["reasons"][0].endswith(f": python -m jobs finalize {cell['run_id']}"), "what adds what is missing"


def test_where_nights_are_tagged_no_other_run_is_a_night(eight_nights: Path) -> None:
    """Whoever launches a suite into the folder of the nights changes no verdict."""
    before = nights_of(eight_nights)
    others = [
        cells.finished(eight_nights, replace(cells.SPEC, seed=99, tag=tag), [0] * 12, started_at=runs.START)
        for tag in (None, "experiment")
    ]
    list(load_runs(others, eight_nights / "w.duckdb"))
    assert nights_of(eight_nights) == before


def test_a_mistake_gets_one_line_and_exit_code_2(eight_nights: Path, snapshot: SnapshotAssertion) -> None:
    said = {}
    for words in (("--night", "2020-01-01"), ("--night", "soon"), ("--since", "2100-01-01")):
        result = CliRunner().invoke(main, ["--database", str(eight_nights / "w.duckdb"), *words])
        assert result.exit_code == 2
        said[" ".join(words)] = result.stderr.strip().splitlines()[-1]
    assert said == snapshot


def replayed(file: Path, text: str) -> tuple[int, str]:
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["replay", str(file)])
    return result.exit_code, result.stderr or result.stdout


def test_the_documented_past_is_judged_as_documented(tmp_path: Path) -> None:
    page = Path("docs/statistics.md").read_text(encoding="utf-8")
    documented = known(re.search(r"( {4}night,cell.*?\n)\n", page, re.DOTALL))
    code, said = replayed(tmp_path / "past.csv", textwrap.dedent(documented[1]))
    assert (code, said.split()[7:12]) == (0, ["2026-02-08", "mine", "accuracy", "61.9", "%"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("night,cell,value\n", "measure"),
        ("night,cell,measure,value,n\n2026-13-01,a,b,1,\n", "line 2: "),
        ("night,cell,measure,value,n\n2026-01-01,a,b,nan,\n", "line 2: nan"),
        ("night,cell,measure,value,n\n2026-01-01,a,b,3,10\n", "line 2: with n"),
    ],
)
def test_a_file_that_is_no_past_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    code, said = replayed(tmp_path / "past.csv", text)
    assert (code, message in said, said.count("\n")) == (2, True, 1)


def test_nights_have_the_environment_of_their_runs_without_the_processor(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {}, {"hardware": {"cpu": "another"}}, {"versions": {"vllm": "0.33"}}, {"device": "NVIDIA A100"}
    ]  # fmt: skip
    nights = [made(tmp_path, day, CALM, **change) for day, change in enumerate(changes, 1)]
    list(load_runs(nights, tmp_path / "w.duckdb"))
    usual, *others = (night[0].environment for night in nights_of(tmp_path))
    changed = [{name for name in usual if environment[name] != usual[name]} for environment in others]
    assert changed == [set(), {"vllm"}, {"devices"}]


def test_only_a_re_run_like_the_first_run_counts_and_the_others_are_named(tmp_path: Path) -> None:
    folders = [
        made(tmp_path, 1, CALM, late=7200.0),  # whatever the clocks say
        made(tmp_path, 1, CALM, ".confirm1"),
        made(tmp_path, 1, CALM, ".confirm", device="NVIDIA A100"),
        made(tmp_path, 1, CALM, ".confirm2", missing=3),
        made(tmp_path, 1, CALM, ".confirm3", spec=replace(cells.SPEC, concurrency=99)),
    ]
    list(load_runs(folders, tmp_path / "w.duckdb"))
    first, again, *unlike = (folder.path.name for folder in folders)
    reasons = ("devices: NVIDIA H100 → NVIDIA A100", "(3 of 48 samples ", ": 1 → 48 (")
    others = dict(zip(unlike, reasons, strict=True))
    [[cell]] = nights_of(tmp_path)
    assert (cell.first.run_id, [run.run_id for run in cell.reruns]) == (first, [again])
    said = {phrase.split()[1]: phrase for phrase in cell.uncounted}
    assert [run for run, reason in others.items() if reason in said[run]] == list(others)
    assert list(cell.uncounted) == judged(tmp_path)[1]["cells"][0]["reasons"][1:]
