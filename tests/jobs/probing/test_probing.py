"""A probe draws decisions by strata and continues them with the target alone; its points are labels for routers."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from harness.problems import benchmarks
from harness.prompts import STEP_END
from jobs import after, drive, graders
from jobs.continuations import probe as probing
from jobs.continuations import router_labels
from jobs.forecast import Forecast
from jobs.preparation import PreparedLaunch
from jobs.run import derived, trace_files
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records
from tests.jobs.runs import SCRIPTED, finished_run, jobs
from warehouse.database import reader, rows
from warehouse.examples import router


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finished_run(tmp_path_factory.mktemp("runs"), method="specreason", samples=4)


def probe(run: RunFolder, *words: str) -> Result:
    return jobs("probe", run.path, "--cluster", "debug", *words)


def the_probe(run: RunFolder) -> RunFolder:
    [path] = run.path.parent.glob("probe-*")
    return RunFolder(path)


def test_the_weights_of_the_points_sum_to_the_decisions_of_each_stratum(probed: RunFolder) -> None:
    points, population = probing.draw(probed, 20, seed=1)
    weights: defaultdict[probing.Stratum, float] = defaultdict(float)
    for point in points:
        weights[point.stratum] += point.weight
    assert dict(weights) == pytest.approx(dict(population.strata))
    assert len({(point.sample_id, point.step_index) for point in points}) == len(points)


def test_half_of_the_points_are_refusals_where_there_are_as_many(probed: RunFolder) -> None:
    _, population = probing.draw(probed, 2, seed=0)
    num_refused = sum(count for (accepted, _), count in population.strata.items() if not accepted)
    drawn = probing.draw(probed, 4 * num_refused, seed=0)
    assert sum(not point.accepted for point in drawn[0]) == num_refused
    assert drawn == probing.draw(probed, 4 * num_refused, seed=0)
    assert drawn != probing.draw(probed, 4 * num_refused, seed=4)


def test_a_point_is_the_chain_before_a_step_and_the_proposal_for_it(probed: RunFolder) -> None:
    samples = {row["sample_id"]: row["steps"] for row in counting_records(probed, ["steps"])}
    points, _ = probing.draw(probed, 1000, seed=0)
    assert {point.accepted for point in points} == {True, False}
    for point in points:
        steps = samples[point.sample_id]
        step = steps[point.step_index]
        assert point.before == "".join(one["text"] for one in steps[: point.step_index])
        assert point.draft == (step["text"] if point.accepted else step["candidates"][point.candidate_index]["text"])
        assert point.value == step["verdicts"][-1]["score"]


def test_proposals_that_end_the_reply_are_counted_and_left_out(probed: RunFolder) -> None:
    points, population = probing.draw(probed, 1000, seed=0)
    decided = [step for row in counting_records(probed, ["steps"]) for step in row["steps"] if step["verdicts"]]
    assert population.num_ending > 0
    assert len(points) + population.num_ending == len(decided)


def test_a_probe_is_a_run_of_the_target_on_beginnings_and_the_same_command_resumes_it(probed: RunFolder) -> None:
    words = ("--points", "6", "--rollouts", "2")
    first = probe(probed, *words)
    assert first.exit_code == 0, first.output
    run = the_probe(probed)
    spec, problems = run.spec(), run.problems()
    assert (spec.method, spec.samples, spec.draft) == ("vanilla", 2, None)
    assert spec.target == probed.spec().target
    [path] = run.derived("probe_points")
    rows = trace_files.read_rows(path)
    by_id = {problem.id: problem for problem in problems}
    assert len(problems) == 2 * len(rows)
    for row in rows:
        behind, own = by_id[row["draft_problem_id"]], by_id[row["own_problem_id"]]
        assert behind.beginning.startswith(own.beginning)
        assert len(behind.beginning) > len(own.beginning)
    assert "pass@1" not in first.output, "that of continuations means nothing"
    before = sorted(run.path.rglob("*.parquet"))
    assert probe(probed, *words).exit_code == 0
    assert the_probe(probed) == run
    assert sorted(run.path.rglob("*.parquet")) == before
    beginnings = {problem.id: problem.beginning for problem in problems}
    samples = list(counting_records(run, ["problem_id", "steps"]))
    assert len(samples) == 2 * len(beginnings)
    assert all(one["steps"][0]["text"].startswith(beginnings[one["problem_id"]]) for one in samples)


def test_a_run_without_decisions_is_refused_by_name(tmp_path: Path) -> None:
    run = finished_run(tmp_path, method="vanilla", model="target")
    found = probe(run)
    assert (found.exit_code, found.stderr.count("\n"), run.path.name in found.stderr) == (2, 1, True)


def test_a_run_whose_target_is_gone_is_refused_before_anything_is_written(
    probed: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = probed.spec()
    gone = replace(spec, target=replace(SCRIPTED, model="mine", path=str(tmp_path / "gone")))
    monkeypatch.setattr(RunFolder, "spec", lambda self: gone)
    found = probe(probed, "--points", "5")
    assert (found.exit_code, str(tmp_path / "gone") in found.output) == (2, True)


def test_a_probe_is_refused_above_its_estimate_and_without_one(probed: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(probed.path, tmp_path / probed.path.name))
    words = ("--points", "2", "--rollouts", "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(after, "forecast", lambda *_: Forecast(2.0, 7.0, 9.5, 4, "history: earlier on 4 × H100"))
        refused = probe(run, *words, "--max-gpu-hours", "1e-9")
    unknown = probe(run, *words, "--max-gpu-hours", "1e-9")
    for found in (refused, unknown):
        assert (found.exit_code, "--max-gpu-hours" in found.output) == (2, True)
    assert probe(run, *words, "--dry-run").exit_code == 0
    assert not list(tmp_path.glob("probe-*"))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of SpecReason with scripted engines, probed, with its labels beside the run folders."""
    run = finished_run(tmp_path_factory.mktemp("labelled") / "runs", method="specreason", samples=2)
    assert probe_few(run, "-o", str(run.path.parent / "labels.parquet")).exit_code == 0
    return run


def probe_few(run: RunFolder, *words: str) -> Result:
    return probe(run, "--points", "12", "--rollouts", "3", *words)


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def test_a_label_has_the_worths_of_the_warehouse_and_the_texts_of_the_runs(labelled: RunFolder) -> None:
    found = read(labelled.path.parent / "labels.parquet")
    with reader(labelled.path.parent / "warehouse.duckdb") as connection:
        points = {(point["sample_id"], point["step_index"]): point for point in rows(connection, "FROM probe", {})}
    assert len(found) == len(points) > 6
    steps = {row["sample_id"]: row["steps"] for row in counting_records(labelled, ["steps"])}
    of_sample = {unit.sample_id: unit.problem_id for shard in labelled.shards() for unit in shard}
    texts = {problem.id: problem.text for problem in labelled.problems()}
    for label in found:
        point, chain = points[label["sample_id"], label["step_index"]], steps[label["sample_id"]]
        assert label["draft_worth"] == point["draft_worth"]
        assert label["target_worth"] == point["own_worth"]
        assert label["num_draft_rollouts"] == point["num_draft_rollouts"] == 3
        assert (label["problem_id"], label["weight"]) == (of_sample[label["sample_id"]], point["weight"])
        assert label["value"] == chain[label["step_index"]]["verdicts"][-1]["score"]
        assert label["context"] == "".join(step["text"] for step in chain[: label["step_index"]])
        step = chain[label["step_index"]]
        proposal = step if label["accepted"] else step["candidates"][label["candidate_index"]]
        assert label["draft_step"] == proposal["text"]
        assert label["problem"] == texts[label["problem_id"]]
        assert (label["draft_model"], label["target_fingerprint"]) == ("scripted", "scripted")


def test_the_targets_step_is_the_first_of_its_first_continuation(labelled: RunFolder) -> None:
    continued = {
        row["steps"][0]["text"]
        for row in counting_records(the_probe(labelled), ["sample_index", "steps"])
        if row["sample_index"] == 0
    }
    for label in read(labelled.path.parent / "labels.parquet"):
        step = label["target_step"]
        assert step.count(STEP_END) == step.endswith(STEP_END)
        assert any(text.startswith(label["context"] + step) for text in continued)


def test_a_problem_is_in_one_part_whatever_its_run_and_families_stay_together() -> None:
    problems = benchmarks.load("demo")
    parts = [router_labels.split_of(problem) for problem in problems]
    assert set(parts) == {"train", "validation", "test"}
    assert [router_labels.split_of(replace(one, id="x/1", dataset="x")) for one in problems] == parts
    assert len({router_labels.split_of(replace(problem, family="one")) for problem in problems}) == 1


def test_points_without_grades_are_left_out_and_counted(labelled: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(labelled.path.parent, tmp_path / "runs")
    source = RunFolder(tmp_path / "runs" / labelled.path.name)
    probed = the_probe(source)
    version = graders.recorded(probed).version
    grades = trace_files.read_rows(probed.derived_path("grades", version))
    arms = {sample["sample_id"]: sample["problem_id"] for sample in counting_records(probed, ["problem_id"])}
    derived.write(probed, "grades", version, [row for row in grades if not arms[row["sample_id"]].endswith("/0-own")])
    told = router_labels.write(probed, source, tmp_path / "labels.parquet")
    assert len(read(tmp_path / "labels.parquet")) == len(grades) // 6 - 1
    assert "left out: 1 " in told


def test_a_probe_that_is_not_finished_says_how_to_get_the_file(
    labelled: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submitted(rounds: Sequence[Sequence[PreparedLaunch]], *_: object, **__: object) -> list[RunFolder]:
        [[prepared]] = rounds
        drive.create(prepared)
        return [prepared.run]

    source = RunFolder(shutil.copytree(labelled.path, tmp_path / labelled.path.name))
    monkeypatch.setattr(drive, "drive", submitted)
    found = probe_few(source, "-o", str(tmp_path / "labels.parquet"))
    assert (found.exit_code, "labels.parquet" in found.output) == (0, True)
    assert not (tmp_path / "labels.parquet").exists()


@pytest.mark.parametrize("path", ["labels.csv", "no/labels.parquet", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_probe(
    path: str, labelled: RunFolder, tmp_path: Path
) -> None:
    source = RunFolder(shutil.copytree(labelled.path, tmp_path / labelled.path.name))
    found = probe_few(source, "-o", str(tmp_path / path))
    assert (found.exit_code, found.stderr.count("\n")) == (2, 1), found.output
    assert not list(tmp_path.glob("probe-*"))


def test_the_example_finds_what_the_text_tells_and_the_judge_does_not(
    labelled: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [label, *_] = read(labelled.path.parent / "labels.parquet")
    made = [
        {
            **label,
            "split": "test" if number % 3 else "train",
            "problem": f"problem {number // 6}",
            "draft_step": f"so {'this slip' if number % 2 else 'it'} is {number % 7}",
            "draft_worth": 0.0 if number % 2 else 1.0,
            "target_worth": 0.5 + (number % 11 == 0) / 2,
            "value": float(number % 5),
        }
        for number in range(240)
    ]
    pq.write_table(pa.Table.from_pylist(made, schema=router_labels.LABELS), tmp_path / "made.parquet")
    router.main([str(tmp_path / "made.parquet")])
    of_router, of_judge = (line.split() for line in capsys.readouterr().out.splitlines()[-2:])
    assert float(of_router[1]) > 0.9
    assert 0.4 < float(of_judge[1]) < 0.6
