"""Commands that read finished samples, in trace files and in the journals that killed workers left."""

from __future__ import annotations

import asyncio
import errno
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.chain.chain_scores import RewardModel
from harness.engines.scripted import ScriptedEngine
from jobs.finished import scoring
from jobs.finished.lossless import first_divergence
from jobs.finished.scoring import score
from jobs.finished.step_prompts import prompts_of
from jobs.finished.training_data import check, graded_drafts, target_chains
from jobs.run import trace_files
from jobs.run.endings import read_endings
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder
from jobs.run.spec import AdapterSpec, units
from jobs.run.trace_files import counting_records
from jobs.work.shard_run import seed_of
from jobs.work.target_logprobs import Scored
from jobs.work.worker import run_shard
from tests.harness.conftest import tiny_models
from tests.harness.training import folders
from tests.jobs.runs import finished_run, jobs, plan, slow_worker
from tests.shared import with_settings
from warehouse.loading.runs import load_run
from warehouse.trace import main as print_trace

__all__ = ["tiny_models"]


def killed(run: RunFolder) -> RunFolder:
    """Kill the worker of a run whose samples have several steps once six are finished."""
    worker = slow_worker(run)
    while len(read_endings(run).finished) < 6:
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not run.trace_files()
    return run


def killed_at_its_end(run: RunFolder) -> RunFolder:
    """Run all samples of a run in a worker that ends before it has written a trace file."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jobs.run.endings.compact_own", lambda run, path: None)
        run_shard(str(run.path), 0)
    assert not run.trace_files()
    return run


def exit_of(*words: object) -> tuple[int, str]:
    result = jobs(*words)
    return result.exit_code, result.output


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    """Two equal runs, the second of which is journals alone."""
    run, baseline = (plan(tmp_path / name, samples=1, method="vanilla", temperature=0.0) for name in "ab")
    run_shard(str(run.path), 0)
    return run, killed_at_its_end(baseline)


def test_the_target_and_a_reward_model_score_it_and_a_probe_draws_from_it(tmp_path: Path) -> None:
    run = killed(plan(tmp_path, method="specreason", samples=4))
    probe = ("probe", run.path, "--cluster", "debug", "--points", "6", "--rollouts", "1")
    code, told = exit_of(*probe, "--dry-run")
    assert code == 2
    assert run.path.name in told
    finished = set(read_endings(run).finished.to_pylist())
    assert exit_of("target-logprobs", run.path)[0] == 0
    engine = ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1])
    assert asyncio.run(score(run, RewardModel(engine), "toy@1/1"))[0]
    for kind in ("target_logprobs", "scores"):
        rows = [row for path in run.derived(kind) for row in trace_files.read_rows(path)]
        assert {row["sample_id"] for row in rows} == finished
    assert exit_of(*probe)[0] == 0
    assert list(run.path.parent.glob("probe-*"))


def test_its_tokens_are_compared(two_runs: tuple[RunFolder, RunFolder]) -> None:
    run, baseline = two_runs
    code, told = exit_of("lossless", run.path, baseline.path)
    assert (code, told.split()[0]) == (0, "8")
    assert baseline.trace_files(), "its journal was compacted"


def test_tokens_of_a_run_that_may_not_be_written_are_compared_by_its_trace_files(
    two_runs: tuple[RunFolder, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: RunFolder) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(run.path))

    run, baseline = two_runs
    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    code, told = exit_of("lossless", run.path, baseline.path)
    first, *_ = told.splitlines()
    assert (code, re.findall(r"\d+", first)) == (1, ["0", "0"])
    assert set(re.findall(r"(\d+) of its (\d+)", told)) == {("0", "8")}
    code, told = exit_of("probe", baseline.path, "--cluster", "debug")
    assert (code, str(baseline.path) in told) == (2, True)


def test_a_journal_that_cannot_be_compacted_keeps_no_other_run_from_being_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, other = killed_at_its_end(plan(tmp_path, drafts=3, samples=1)), plan(tmp_path, samples=1)
    run_shard(str(other.path), 0)

    def refuse(run: RunFolder) -> int:
        raise RunDamaged(f"{run.path} cannot be read")

    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    refused, scored = scoring.score_each([left, other], None)
    assert isinstance(refused, RunDamaged)
    assert isinstance(scored, Scored)
    assert scored.num_samples == 8


@pytest.mark.parametrize(
    ("first", "second", "position"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [1], 0), ([], [], None)],
)
def test_the_first_difference_is_located(first: list[int], second: list[int], position: int | None) -> None:
    assert first_divergence(first, second) == position
    assert first_divergence(second, first) == position


def test_what_two_runs_have_in_common_and_the_first_difference_are_told(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    run, baseline = (finished_run(tmp_path / name, samples=1, method="vanilla", temperature=0.0) for name in "ab")

    def lossless(*runs: RunFolder) -> tuple[int, str]:
        return exit_of("lossless", *(run.path for run in runs or (run, baseline)))

    def changed(run: RunFolder, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
        [part] = run.trace_files()
        rows = change(trace_files.read_rows(part))
        trace_files.write_table(part, trace_files.TRACES, rows, trace_files.read_metadata(part))

    def another_token(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[0]["steps"][0]["token_ids"][5] += 1
        return rows

    told = {"equal": lossless()}
    changed(run, lambda rows: rows[:3])
    told["unfinished"] = lossless()
    changed(baseline, another_token)
    told["another token"] = lossless()
    changed(baseline, lambda rows: [{**row, "target_prompt": f"Monday. {row['target_prompt']}"} for row in rows])
    told["another prompt"] = lossless()
    told["sampled"] = lossless(plan(tmp_path, samples=1), plan(tmp_path, samples=2))
    assert {name: code for name, (code, _) in told.items()} == dict(zip(told, (0, 0, 1, 2, 2), strict=True))
    assert {name: re.sub(r"-[0-9a-f]{8}\b", "-HASH", output) for name, (_, output) in told.items()} == snapshot


@pytest.mark.parametrize(
    ("method", "params"),
    [("vanilla", {}), ("speccot", {}), ("specreason", {"first_steps": 1}), ("scot", {}), ("specguard", {})],
)
def test_every_call_of_every_step_is_put_together_as_it_was_sent(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    run = finished_run(tmp_path, samples=1, method=method, **params)
    [sample, *_] = counting_records(run, ["problem_id", "steps", "calls"])
    for step in range(len(sample["steps"])):
        sent = prompts_of(run, sample["problem_id"], 0, step)
        recorded = [call for call in sample["calls"] if call["step"] == step]
        assert [(one.call.purpose, one.call.prompt_tokens) for one in sent] == [
            (call["purpose"], call["prompt_tokens"]) for call in recorded
        ]
        assert all(one.is_as_recorded for one in sent)
        before = "".join(one["text"] for one in sample["steps"][:step])
        writing = [prompt for one in sent if one.call.purpose != "verdict" for prompt in one.prompts]
        assert all(before in prompt for prompt in writing)


def test_a_reply_that_the_trace_does_not_keep_is_told_and_the_viewer_prints_the_calls(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1, method="lookahead")
    [sample, *_] = counting_records(run, ["problem_id", "steps"])
    sent = prompts_of(run, sample["problem_id"], 0, 0)
    assert sent[0].is_as_recorded
    assert not all(one.is_as_recorded for one in sent)
    load_run(run, tmp_path / "w.duckdb")
    arguments = [str(run.path), sample["problem_id"], "0", "--database", str(tmp_path / "w.duckdb"), "--prompt"]
    printed = CliRunner().invoke(print_trace, [*arguments, "0"])
    assert printed.exit_code == 0
    assert len([line for line in printed.stdout.splitlines() if line.startswith("── step 0")]) == len(sent)
    refused = CliRunner().invoke(print_trace, [*arguments, "99"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_a_targets_chains_are_read_in_the_order_of_the_problems(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    run = folders.vanilla(tmp_path, tiny_models["target"], 4)
    check(run, "align")
    chains = list(target_chains(run))
    assert [chain.text for chain in chains] == [folders.chain(i) for i in range(4)]
    assert [chain.finish for chain in chains] == ["eos", "eos", "eos", "length"]


def test_drafts_are_read_as_they_were_offered_with_their_grades(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    right = [(True, False, True), (False, False)]
    run = folders.scot(tmp_path, tiny_models["draft"], tiny_models["target"], right)
    check(run, "select")
    graded = list(graded_drafts(run))
    verdicts = [tuple(draft.verdict == "correct" for draft in drafts.offered) for drafts in graded]
    assert verdicts == right
    assert all(draft.text.startswith(f"Way {i}") for drafts in graded for i, draft in enumerate(drafts.offered))


def test_with_a_selection_adapter_the_same_drafts_are_drawn(tmp_path: Path) -> None:
    run = plan(tmp_path, method="scot")
    spec, problems = run.spec(), {problem.id: problem for problem in run.problems()}
    tuned = with_settings(spec, "target", adapter=AdapterSpec("selector", "/selector", "f" * 16, 8))
    seeds = [
        [seed_of(s, unit, problems[unit.problem_id], str) for unit in units(s, run.problems())]
        for s in (spec, tuned, replace(tuned, seed=1))
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == len(seeds[0])
    assert not set(seeds[0]) & set(seeds[2])


def test_a_run_of_another_kind_or_that_is_not_finished_is_refused(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    vanilla = folders.vanilla(tmp_path, tiny_models["target"])
    with pytest.raises(ValueError, match=r"select needs a run of scot, but .* is a run of vanilla with the target"):
        check(vanilla, "select")
    with pytest.raises(ValueError, match="scripted engines"):
        check(plan(tmp_path, method="vanilla"), "align")
    with pytest.raises(ValueError, match="is a run of vanilla with the draft"):
        check(plan(tmp_path, method="vanilla", model="draft"), "align")
    for part in vanilla.trace_files_dir.iterdir():
        part.unlink()
    with pytest.raises(ValueError, match=r"has 6 unfinished samples: to finish, run: python -m jobs resume"):
        check(vanilla, "align")
