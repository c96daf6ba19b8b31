"""Decisions in journals and trace files: kept where a method records one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harness.chain import Chain, Limits
from harness.chain.step_candidates import as_candidates
from harness.engine import Completion
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.recording import Model
from harness.trace import Decision, Step, Trace
from jobs.run import trace_files
from jobs.run.endings import compact
from jobs.run.journal import JournalWriter, read_journal
from tests.harness.scripts import PROBLEM, new_trace
from tests.jobs import runs
from tests.jobs.run.test_journal import ATTEMPT, a_step

CONFIDENT = Decision.at_least("confidence", 0.4, 0.65)
DECIDED = Step("target", "fallback", "one\n\n", 3, (1, 2, 3), "stop", elapsed_seconds=1.5, decision=CONFIDENT)


def journal(path: Path, *steps: Step) -> list[dict[str, object]]:
    """The events of a journal in which a sample goes on after the first of these steps."""
    writer = JournalWriter(path, ATTEMPT)
    trace = Trace("s1", "demo/0", 0, seed=1, steps=[steps[0]])
    writer.start(trace)
    for step in steps[1:]:
        trace.steps.append(step)
        writer.step(trace, step)
    writer.close()
    return [json.loads(line) for line in path.read_bytes().splitlines()][1:]


def test_a_decision_comes_back_from_the_journal_also_where_its_step_was_carried_over(tmp_path: Path) -> None:
    journal(tmp_path / "j.jsonl", DECIDED, a_step("two\n\n"), DECIDED)
    [trace] = read_journal(tmp_path / "j.jsonl").unfinished.values()
    assert [step.decision for step in trace.steps] == [CONFIDENT, None, CONFIDENT]


def test_a_journal_with_an_invalid_decision_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    broken = Step("draft", "draft", "one", 1, (1,), "stop", decision=Decision("a", None, None, accepted=True))
    assert broken.decision is not None
    broken.decision.kind = "<b>" * 50
    journal(path, a_step("one\n\n"), broken)
    read = read_journal(path)
    assert read.lost_lines[0] > 1


def test_the_trace_files_of_a_run_are_those_of_its_journals(tmp_path: Path) -> None:
    run = runs.plan(tmp_path)
    unit = run.shards()[0][0]
    trace = Trace(unit.sample_id, unit.problem_id, unit.sample_index, seed=1)
    attempt = replace(ATTEMPT, run_id=run.path.name)
    writer = JournalWriter(run.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
    writer.start(trace)
    trace.steps.append(DECIDED)
    writer.step(trace, DECIDED)
    trace.stop_reason = "answered"
    writer.end(trace)
    writer.close()
    compact(run)
    [file] = run.trace_files()
    [row] = trace_files.read_rows(file)
    assert row["steps"][0]["decision"] == asdict(CONFIDENT)


@pytest.mark.parametrize("kind", ["", "Reward", "1st", "a" * 41, "a\n", "<b>"])
def test_a_kind_is_a_short_plain_word(kind: str) -> None:
    with pytest.raises(ValueError, match="kind of a decision"):
        Decision(kind, None, None, accepted=True)


def test_a_number_at_the_threshold_is_accepted_from_either_side() -> None:
    assert Decision.at_least("reward", 0.5, 0.5).accepted
    assert Decision.at_most("entropy", 0.5, 0.5).accepted
    assert not Decision.at_least("reward", 0.4, 0.5).accepted
    assert not Decision.at_most("entropy", 0.6, 0.5).accepted


def test_the_kind_of_a_verdict_needs_the_verdict() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: ["x"] * sampling.n, lambda prompt, labels: [1.0] * len(labels))
    trace = new_trace()
    draft, target = Model(engine, "draft", trace), Model(engine, "target", trace)
    chain = Chain(PROBLEM, [draft, target], trace, Limits(0.6, 0.95, 1000))
    proposed = Completion(tuple(ByteTokenizer().encode("x\n\n")), "x\n\n", "stop", 3)
    decision = Decision("score", 7.0, 5.0, accepted=True)
    with pytest.raises(ValueError, match="needs a verdict"):
        chain.accept(draft, "draft", proposed, as_candidates([proposed]), decision=decision)
    verdict = a_step("x").verdict
    assert verdict is not None
    verdict.kind = "score"
    chain.accept(draft, "draft", proposed, as_candidates([proposed]), verdict, decision=decision)
    assert trace.steps[0].decision == decision
