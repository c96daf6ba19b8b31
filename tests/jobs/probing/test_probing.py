"""A probe draws decisions by strata and continues them with the target alone; the same command resumes it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs import after
from jobs.__main__ import main
from jobs.continuations import probe as probing
from jobs.forecast import Forecast
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records
from tests.jobs.runs import SCRIPTED, finished_run


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of SpecReason with scripted engines."""
    return finished_run(tmp_path_factory.mktemp("runs"), method="specreason", samples=4)


def probe(run: RunFolder, *words: str) -> Result:
    return CliRunner().invoke(main, ["probe", str(run.path), "--cluster", "debug", *words])


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
