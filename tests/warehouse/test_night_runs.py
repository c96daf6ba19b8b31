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
from xml.etree import ElementTree

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from junitparser import Failure, JUnitXml

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import cells, runs
from tests.warehouse.conftest import Ask, Loaded
from warehouse.database import reader, rows
from warehouse.estimates import of_problems
from warehouse.load import main as load
from warehouse.loading.runs import load_run, load_runs
from warehouse.measures import MEASURES
from warehouse.nightly.__main__ import main
from warehouse.nightly.history import keep_nights, kept_nights, read_nights, read_values
from warehouse.nightly.judge import CellNight
from warehouse.report.summary import summary

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
    """Make a run of the night of a day."""
    tagged = replace(spec, seed=day, tag=f"2026-01-{day:02}{suffix}")
    started_at = runs.START + day * DAY + more.pop("late", 0.0)
    return cells.finished(where, tagged, correct, started_at=started_at, **more)


def nights_of(where: Path) -> list[list[CellNight]]:
    with reader(where / "w.duckdb") as connection:
        return read_nights(connection)


def judged(where: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["--database", str(where / "w.duckdb"), "--format", "json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def test_the_processors_model_is_no_environment_of_accuracy(tmp_path: Path) -> None:
    for day in range(1, 9):
        add(tmp_path, day, CALM, processor=f"model {day % 2}")
    add(tmp_path, 9, BAD, processor="model 0")
    add(tmp_path, 9, BAD, ".confirm", processor="model 1")
    codes = [judged(tmp_path, "--night", f"2026-01-{day:02}")[0] for day in range(6, 10)]
    assert codes == [4, 4, 0, 1]


def test_a_drop_that_comes_with_a_new_engine_fails_its_first_night(tmp_path: Path) -> None:
    for day in range(1, 8):
        add(tmp_path, day, CALM, versions={"vllm": "0.32"})
    for suffix in ("", ".confirm"):
        add(tmp_path, 8, BAD, suffix, versions={"vllm": "0.33"})
    code, verdict = judged(tmp_path)
    assert code == 1
    [named, drop, *_] = verdict["cells"][0]["reasons"]
    assert named == "environment changed: vllm: 0.32 → 0.33; compared with 7 nights before, until 2026-01-07"
    assert " against 7 nights of the environment before" in drop


def test_a_re_run_is_not_the_first_run_whatever_the_clocks_say(tmp_path: Path) -> None:
    first = add(tmp_path, 1, CALM, late=7200.0)
    again = add(tmp_path, 1, BAD, ".confirm")
    [[cell]] = nights_of(tmp_path)
    assert (cell.first.run_id, [batch.run_id for batch in cell.reruns]) == (first, [again])


def test_a_re_run_that_does_not_count_is_named(tmp_path: Path) -> None:
    add(tmp_path, 1, CALM)
    elsewhere = add(tmp_path, 1, CALM, ".confirm", device="NVIDIA A100")
    again = add(tmp_path, 1, CALM, ".confirm1")
    part = add(tmp_path, 1, CALM, ".confirm2", missing=3)
    other_clock = add(tmp_path, 1, CALM, ".confirm3", late=3600.0, spec=replace(cells.SPEC, concurrency=99))
    [[cell]] = nights_of(tmp_path)
    assert [run.run_id for run in cell.reruns] == [again]
    assert len(cell.uncounted) == 3
    said = {phrase.split()[1]: phrase for phrase in cell.uncounted}
    assert said[elsewhere] == f"re-run {elsewhere} does not count: devices: NVIDIA H100 → NVIDIA A100"
    assert said[part].startswith(f"re-run {part} does not count: it is not finished (3 of 48 samples ")
    assert said[other_clock].startswith(f"re-run {other_clock} does not count: samples in flight: 1 → 48 (")
    assert list(cell.uncounted) == judged(tmp_path)[1]["cells"][0]["reasons"][1:]


def test_a_night_pairs_its_runs_with_its_own_target_alone_only(tmp_path: Path) -> None:
    """Vanilla takes 20 s and 40 s in two nights; the method always 10 s."""
    methods = []
    for day, seconds in ((1, 20.0), (2, 40.0)):
        add(tmp_path, day, CALM, spec=cells.VANILLA, latency=seconds)
        methods.append(add(tmp_path, day, CALM, latency=10.0))
    methods.append(add(tmp_path, 2, CALM, ".confirm", latency=10.0))
    cells.finished(tmp_path, replace(cells.SPEC, seed=9), CALM, latency=10.0)
    with reader(tmp_path / "w.duckdb") as connection:
        pairs = rows(connection, "SELECT run_id, round(speed_up, 6) AS speed_up FROM speed_up ORDER BY run_id")
    assert pairs == [{"run_id": run, "speed_up": ratio} for run, ratio in sorted(zip(methods, (2, 4, 4), strict=True))]
    assert [len(run.against_with("speed_up")) for run in summary(tmp_path / "w.duckdb", methods)] == [1, 1, 1]
    of_method = [cell for night in nights_of(tmp_path) for cell in night if cell.baseline is not None]
    found = [math.exp(cell.first.values["speed_up"]) for cell in of_method]
    assert found == pytest.approx([2, 4])
    assert {cell.baseline for cell in of_method} == {cell.cell for cell in nights_of(tmp_path)[0] if not cell.baseline}


def test_metrics_are_those_of_the_views(loaded: Loaded, ask: Ask) -> None:
    judged = read_values(ask.connection)
    found = {name: value for name, _, value in judged[loaded.speculative.path.name]}
    tokens = ask("token_split", loaded.speculative)
    cache = ask("call_total", loaded.speculative)
    assert found["fallback_rate"] == ask("fallback_rate", loaded.speculative)[0]["fallback_rate"]
    assert found["draft_share"] == next(row["emitted_share"] for row in tokens if row["model"] == "draft")
    for metric, column in (
        ("spent_tokens", "spent_tokens_per_sample"),
        ("critical_path_tokens", "critical_path_tokens_per_sample"),
    ):
        assert math.exp(found[metric]) == pytest.approx(sum(row[column] for row in tokens))
    hits = sum(row["cached_tokens"] for row in cache) / sum(row["prompt_tokens"] for row in cache)
    assert found["cache_hit_rate"] == pytest.approx(hits)
    assert "fallback_rate" not in {name for name, _, _ in judged[loaded.vanilla.path.name]}


def test_a_slower_method_fails_the_night_and_its_baseline_is_run_again_too(tmp_path: Path) -> None:
    for day in range(1, 9):
        jitter = 1 + 0.01 * (day % 3)
        add(tmp_path, day, CALM, spec=cells.VANILLA, latency=20.0)
        add(tmp_path, day, CALM, latency=10.0 * jitter)
    base = add(tmp_path, 9, CALM, spec=cells.VANILLA, latency=20.0)
    slow = add(tmp_path, 9, CALM, latency=20.0)
    code, verdict = judged(tmp_path)
    assert (code, sorted(verdict["confirm"])) == (4, sorted([base, slow]))
    add(tmp_path, 9, CALM, ".confirm", spec=cells.VANILLA, latency=20.0)
    add(tmp_path, 9, CALM, ".confirm", latency=20.0)
    code, verdict = judged(tmp_path)
    assert code == 1
    [cell] = [cell for cell in verdict["cells"] if cell["run_id"] == slow]
    assert any(reason.startswith("speed-up: 1.98× → 1×") for reason in cell["reasons"]), cell["reasons"]
    by_name = {metric["name"]: metric for metric in cell["metrics"]}
    assert by_name["speed-up"]["verdict"] == "FAIL"
    assert by_name["speed-up"]["detectable_change"] < 0.5


def test_a_problem_whose_latency_is_no_number_has_no_times(tmp_path: Path) -> None:
    run_id = add(tmp_path, 1, CALM, slower=lambda problem, sample: 1.0)
    for where, expected in (("problem_id = (SELECT min(problem_id) FROM problem)", [11]), ("true", [])):
        with duckdb.connect(str(tmp_path / "w.duckdb")) as connection:
            connection.execute(f"UPDATE problem_total SET timed_seconds = NULL WHERE {where}")
        with reader(tmp_path / "w.duckdb") as read:
            found = list(of_problems(read, [run_id], [MEASURES["seconds_per_token"]]))
        assert [one.n for one in found] == expected


@pytest.mark.parametrize(
    ("lacking", "command"),
    [
        ({"has_grade": lambda problem, sample: problem > 0}, "finalize"),
        ({"missing": 3, "has_grade": lambda problem, sample: problem > 0}, "resume"),
    ],
)
def test_a_night_names_the_command_that_adds_what_its_run_lacks(
    lacking: dict[str, Any], command: str, tmp_path: Path
) -> None:
    run_id = add(tmp_path, 1, CALM, **lacking)
    code, night = judged(tmp_path)
    [cell] = night["cells"]
    assert code == 4
    assert cell["reasons"][0].endswith(f": python -m jobs {command} {run_id}")


def test_verdicts_are_the_same_to_the_last_digit_when_the_folders_of_nights_are_gone(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    old = [
        made(tmp_path, day, CALM[day:] + CALM[:day], spec=spec, latency=3 + day % 3 + len(spec.method))
        for day in range(1, 9)
        for spec in (cells.SPEC, cells.VANILLA)
    ]
    old += [made(tmp_path, 3, CALM, ".confirm", processor="another")]
    new = [made(tmp_path, 9, BAD, suffix) for suffix in ("", ".confirm")]
    list(load_runs([*old, *new], database))
    nights = [("--night", f"2026-01-0{day}") for day in (8, 9)]
    before = [judged(tmp_path, *night) for night in nights]
    assert before[-1][0] == 1
    assert any(cell["metrics"] for cell in before[0][1]["cells"])
    for _ in range(2):
        keep_nights(database)
    lines = database.with_suffix(".nights.jsonl")
    assert len(kept_nights(database)) == lines.read_text().count('"cell"') == 17, "what is there is not written again"

    for run in old:
        shutil.rmtree(run.path)
    done = CliRunner().invoke(load, [str(tmp_path), "--database", str(database), "--rebuild"])
    assert done.exit_code == 0, done.output
    with reader(database) as connection:
        assert {row["run_id"] for row in rows(connection, "SELECT run_id FROM run")} == {run.path.name for run in new}
    assert [judged(tmp_path, *night) for night in nights] == before

    add(tmp_path, 9, CALM)
    keep_nights(database)
    [*_, newest] = kept_nights(database)
    assert newest.first.values["pass_at_1"] == sum(CALM) / 48, "the newest line of a night counts"


@pytest.fixture(scope="module")
def loaded_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nights")
    for day in range(1, 9):
        add(where, day, [*CALM[:-3], 3 + day % 2, 4, 3])
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
    assert verdict["cells"][0]["num_baseline_nights"] == 8

    file = eight_nights / "night.xml"
    words = ["--database", str(eight_nights / "w.duckdb"), "-o", str(file)]
    assert CliRunner().invoke(main, words).exit_code == 1
    [suite] = JUnitXml.fromstring(file.read_text(encoding="utf-8"))
    [cell] = verdict["cells"]
    expected = [(cell["cell"], name) for name in ("verdict", *(metric["name"] for metric in cell["metrics"]))]
    assert [(case.classname, case.name) for case in suite] == expected
    [failure] = next(iter(suite)).result
    assert isinstance(failure, Failure)
    assert failure.text == "\n".join(cell["reasons"])
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    counts = {name: root.attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": str(len(expected)), "failures": "1", "errors": "0", "skipped": "0"}
    properties = {p.attrib["name"]: p.attrib["value"] for p in root.iter("property")}
    assert properties == {"night": verdict["night"], "verdict": "FAIL", "exit_code": "1"}


def test_an_older_night_can_be_judged_again_and_nights_can_be_forgotten(eight_nights: Path) -> None:
    add(eight_nights, 9, [0] * 12)
    assert judged(eight_nights, "--night", "2026-01-08")[0] == 0
    code, verdict = judged(eight_nights, "--since", "2026-01-09")
    assert (code, verdict["cells"][0]["reasons"]) == (4, ["0 of 7 nights of baseline"])


def test_where_nights_are_tagged_no_other_run_is_a_night(eight_nights: Path) -> None:
    """Whoever launches a suite into the folder of the nights changes no verdict."""
    before = judged(eight_nights)
    for tag in (None, "experiment"):
        other = cells.finished(eight_nights, replace(cells.SPEC, seed=99, tag=tag), [0] * 12, started_at=runs.START)
        load_run(other, eight_nights / "w.duckdb")
    assert judged(eight_nights) == before
    add(eight_nights, 8, [0] * 12, ".confirm")
    assert judged(eight_nights) != before


def test_another_device_is_another_kind_of_night(eight_nights: Path) -> None:
    add(eight_nights, 9, [0] * 12, device="NVIDIA A100")
    code, verdict = judged(eight_nights)
    assert code == 4
    assert verdict["cells"][0]["reasons"][0].startswith("environment changed: devices: NVIDIA H100 → NVIDIA A100")


def test_a_mistake_gets_one_line_and_exit_code_2(eight_nights: Path) -> None:
    for arguments, message in (
        (("--night", "2020-01-01"), "nothing ran in the night of 2020-01-01; the newest nights are: "),
        (("--night", "soon"), "does not match the format '%Y-%m-%d'"),
        (("--since", "2100-01-01"), "no night"),
    ):
        result = CliRunner().invoke(main, ["--database", str(eight_nights / "w.duckdb"), *arguments])
        assert (result.exit_code, message in result.stderr.strip().splitlines()[-1]) == (2, True)
    assert CliRunner().invoke(main, ["--database", "elsewhere"]).exit_code == 2


def replayed(file: Path, text: str) -> tuple[int, str]:
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["replay", str(file)])
    return result.exit_code, result.stderr or result.stdout


def test_a_recorded_past_is_judged_night_by_night(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [
        f"2026-02-{day:02},{cell},{measure},{level + spread * rng.standard_normal() - drop * (day >= 20)},{n}"
        for day in range(1, 23)
        for cell in ("a", "b")
        for measure, level, spread, n, drop in (
            ("accuracy", 0.6, 0.01, 1600, 0.1 if cell == "a" else 0),
            ("seconds", 3, 0.1, "", 0),
        )
    ]
    code, said = replayed(tmp_path / "past.csv", "\n".join(["night,cell,measure,value,n", *lines]))
    _, *found, total = said.splitlines()
    assert (code, [line.split()[:3] for line in found]) == (
        0,
        [[f"2026-02-{day}", "a", "accuracy"] for day in (20, 21, 22)],
    )
    assert total == "3 of 15 judged nights differ from the nights before; 7 had fewer than 7 nights before"


def test_a_measure_of_ones_own_may_end(tmp_path: Path) -> None:
    lines = [
        f"2026-02-{day:02},a,{name},0.6,100" for day in range(1, 12) for name in ("accuracy", "own")[: 1 + (day < 10)]
    ]
    code, said = replayed(tmp_path / "past.csv", "\n".join(["night,cell,measure,value,n", *lines]))
    assert (code, said.split()[:2]) == (0, ["0", "of"])


def test_the_documented_past_is_judged_as_documented(tmp_path: Path) -> None:
    documented = re.search(
        r"( {4}night,cell.*?\n)\n", Path("warehouse/README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert documented is not None
    code, said = replayed(tmp_path / "past.csv", textwrap.dedent(documented[1]))
    assert (code, said.split()[7:12]) == (0, ["2026-02-08", "mine", "accuracy", "61.9", "%"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("night,cell,value\n", "lacks columns: measure"),
        ("night,cell,measure,value,n\n2026-13-01,a,b,1,\n", "line 2: "),
        ("night,cell,measure,value,n\n2026-01-01,a,b,high,\n", "line 2: could not convert"),
        ("night,cell,measure,value,n\n2026-01-01,a,b,nan,\n", "line 2: nan is no value"),
        ("night,cell,measure,value,n\n2026-01-01,a,b,3,10\n", "line 2: n is for shares"),
        ("night,cell,measure,value,n\n2026-01-01,a,b,0,\n2026-01-02,a,b,3,\n", "b is 0 in a line"),
    ],
)
def test_a_file_that_is_no_past_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    code, said = replayed(tmp_path / "past.csv", text)
    assert (code, message in said, said.count("\n")) == (2, True, 1)
