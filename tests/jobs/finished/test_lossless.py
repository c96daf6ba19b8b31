"""The first difference between two greedy runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import main
from jobs.finished.lossless import first_divergence
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


@pytest.mark.parametrize(
    ("first", "second", "position"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [1], 0), ([], [], None)],
)
def test_the_first_difference_is_located(first: list[int], second: list[int], position: int | None) -> None:
    assert first_divergence(first, second) == position
    assert first_divergence(second, first) == position


def greedy(folder: Path) -> RunFolder:
    run = plan(folder, samples=1, method="vanilla", temperature=0.0)
    run_shard(str(run.path), 0)
    return run


def lossless(run: RunFolder, baseline: RunFolder) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["lossless", str(run.path), str(baseline.path)])
    return result.exit_code, result.output


def test_equal_runs_are_lossless_and_a_changed_token_is_named(tmp_path: Path) -> None:
    run, baseline = greedy(tmp_path / "a"), greedy(tmp_path / "b")
    assert lossless(run, baseline) == (0, "8 samples in both runs: 8 identical, token by token\n")
    [part] = baseline.trace_files()
    rows = trace_files.read_rows(part)
    rows[0]["steps"][0]["token_ids"][5] += 1
    trace_files.write_table(part, trace_files.TRACES, rows, trace_files.read_metadata(part))
    code, output = lossless(run, baseline)
    assert code == 1
    assert "7 identical, token by token" in output
    assert f"{rows[0]['problem_id']} 0: differ from token 5" in output


def test_runs_with_other_prompts_are_not_compared(tmp_path: Path) -> None:
    run, baseline = greedy(tmp_path / "a"), greedy(tmp_path / "b")
    [part] = baseline.trace_files()
    rows = [{**row, "target_prompt": f"Monday. {row['target_prompt']}"} for row in trace_files.read_rows(part)]
    trace_files.write_table(part, trace_files.TRACES, rows, trace_files.read_metadata(part))
    code, output = lossless(run, baseline)
    assert code == 2
    assert "sent the target other prompts" in output


def test_of_an_unfinished_run_it_is_said_how_many_samples_are_compared(tmp_path: Path) -> None:
    run, baseline = plan(tmp_path / "a", samples=1, method="vanilla", temperature=0.0), greedy(tmp_path / "b")
    run_shard(str(run.path), 0)
    [part] = run.trace_files()
    rows = trace_files.read_rows(part)
    trace_files.write_table(part, trace_files.TRACES, rows[:3], trace_files.read_metadata(part))
    code, output = lossless(run, baseline)
    assert code == 0
    for folder in (run, baseline):
        assert f"{folder.path.name}: 3 of its 8 samples compared; of the others a run has no finished sample" in output
    assert "3 samples in both runs: 3 identical" in output


def test_a_target_on_a_server_is_compared_by_name_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, baseline = greedy(tmp_path / "a"), greedy(tmp_path / "b")
    spec = run.spec()
    assert spec.target is not None

    def told_as(target: ModelSpec) -> None:
        written = {run.path: replace(spec, target=target), baseline.path: spec}
        monkeypatch.setattr(RunFolder, "spec", lambda folder: written[folder.path])

    served = replace(spec.target, server="vllm", fingerprint="served:other")
    told_as(served)
    said = f"not compared: the weights of the target of {run.path.name}, which a server runs"
    assert lossless(run, baseline) == (0, f"{said}\n8 samples in both runs: 8 identical, token by token\n")
    told_as(replace(served, model="another"))
    code, output = lossless(run, baseline)
    assert code == 2
    assert "differ in target" in output


def test_sampled_runs_are_refused(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=1)
    code, output = lossless(run, plan(tmp_path, samples=2))
    assert code == 2
    assert "--temperature 0" in output
