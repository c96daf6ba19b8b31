"""The target's log-probabilities: every step once, as the target alone would read it, by command, worker or suite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import EngineDied, Likelihood
from harness.engines.scripted import ScriptedEngine
from jobs import suite
from jobs.finished import scoring
from jobs.run import derived, trace_files
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records
from jobs.work.target_logprobs import Scored
from jobs.work.worker import run_shard
from tests.jobs.runs import SCRIPTED, finished_run, jobs, launch_suite, plan, write_suite


def rows_of(run: RunFolder) -> list[dict[str, object]]:
    files = run.derived("target_logprobs")
    return [row for file in files for row in trace_files.read_rows(file)]


def places(run: RunFolder) -> Counter[tuple[object, object]]:
    records = counting_records(run, ["steps.list.element.text"], failed=False)
    return Counter((row["sample_id"], number) for row in records for number in range(len(row["steps"])))


def scored_places(run: RunFolder) -> Counter[tuple[object, object]]:
    return Counter((row["sample_id"], row["step_index"]) for row in rows_of(run))


def target_logprobs(run: RunFolder, *words: object) -> tuple[int, str]:
    result = jobs("target-logprobs", run.path, *words)
    return result.exit_code, result.output


def test_every_step_of_a_finished_run_is_scored_once_and_a_second_command_scores_nothing(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    before = {path: path.read_bytes() for path in (*run.trace_files(), *run.journals(), run.spec_path)}
    code, output = target_logprobs(run)
    assert (code, scored_places(run)) == (0, places(run))
    assert {"8", str(len(rows_of(run)))} <= set(output.split())
    assert {path: path.read_bytes() for path in before} == before, "what was there stays as it was"
    assert target_logprobs(run)[0] == 0
    assert scored_places(run) == places(run)


def test_a_worker_scores_what_it_finishes_where_the_run_asks_for_it(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=1, shards=2)
    run_shard(str(run.path), 0)
    assert not run.derived("target_logprobs")
    derived.ask_for_logprobs(run)
    run_shard(str(run.path), 1)
    by_worker = scored_places(run)
    assert by_worker
    assert by_worker < places(run)
    assert scoring.notice(run)
    scoring.score_each([run], None)
    assert scored_places(run) == places(run), "the command scores what is left, and nothing twice"
    assert scoring.notice(run) == ""


def test_a_damaged_file_is_named_and_its_samples_are_scored_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = finished_run(tmp_path, samples=1)
    scoring.score_each([run], None)
    [path] = run.derived("target_logprobs")
    path.write_bytes(path.read_bytes()[:-40])
    [again] = scoring.score_each([run], None)
    assert isinstance(again, Scored)
    assert again.num_samples == 8
    assert path.name in caplog.text


def test_a_run_without_a_target_is_read_by_that_of_another_run(tmp_path: Path) -> None:
    alone = plan(tmp_path / "draft", samples=1, method="vanilla", model="draft")
    spec = replace(alone.spec(), target=None)
    run = RunFolder(tmp_path / spec.run_id)
    run.create(spec, alone.problems(), alone.shards())
    run_shard(str(run.path), 0)
    code, output = target_logprobs(run)
    assert code == 2
    assert "--target-of RUN" in output
    code, _ = target_logprobs(run, "--target-of", alone.path)
    assert (code, scored_places(run)) == (0, places(run))


def test_a_second_target_is_refused(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    scorer = derived.scorer_of(replace(SCRIPTED, model="other", fingerprint="other"), run.spec())
    derived.write_logprobs(run, scorer, [])
    code, output = target_logprobs(run)
    assert code == 2
    assert {"other", "scripted"} <= set(re.findall(r"\w+", output))


def test_a_target_that_dies_while_it_reads_leaves_no_step_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path, samples=1)
    read, calls = ScriptedEngine.log_probabilities, iter(range(1000))

    async def dies(engine: ScriptedEngine, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        if next(calls) == 3:
            raise EngineDied("out of memory")
        return await read(engine, prompt, continuation)

    monkeypatch.setattr(ScriptedEngine, "log_probabilities", dies)
    code, output = target_logprobs(run)
    assert (code, len(output.splitlines())) == (1, 1)
    assert target_logprobs(run)[0] == 0
    assert scored_places(run) == places(run)
    assert all(row["logprob"] is not None for row in rows_of(run))


def test_a_run_with_other_prompts_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    made = plan(tmp_path / "made", samples=1)
    spec = replace(made.spec(), prompt_hash="0123456789abcdef")
    run = RunFolder(tmp_path / spec.run_id)
    run.create(spec, made.problems(), made.shards())
    code, output = target_logprobs(run)
    assert code == 2
    assert spec.prompt_hash in output


def test_all_runs_of_a_suite_with_a_target_are_scored_once_and_the_draft_alone_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_pair, of_draft = {"method": "speccot", "drafts": 2}, {"method": "vanilla", "model": "draft"}
    common: dict[str, Any] = {"limit": 2, "samples": 1, "target-logprobs": True}
    path = write_suite(tmp_path, {"method": "vanilla"}, of_draft, of_pair, **common)
    target, draft, method = runs = launch_suite(suite.read(path), None)
    assert all(scored_places(run) == places(run) for run in (target, method))
    assert not draft.derived("target_logprobs")
    assert f"jobs target-logprobs {draft.path} --target-of RUN" in " ".join(capsys.readouterr().out.split())
    before = {file: file.read_bytes() for run in runs for file in run.derived("target_logprobs")}
    launch_suite(suite.read(path), None)
    assert {file: file.read_bytes() for run in runs for file in run.derived("target_logprobs")} == before
    assert target_logprobs(draft, "--target-of", target.path)[0] == 0
    assert scored_places(draft) == places(draft)
    assert len({derived.header(run.derived("target_logprobs")[0])["scorer"]["fingerprint"] for run in runs}) == 1
    assert scoring.notice(draft) == ""
