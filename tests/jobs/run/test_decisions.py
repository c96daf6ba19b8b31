"""Decisions in journals and trace files: kept where a method records one."""

from __future__ import annotations

import json
from pathlib import Path

from harness.trace import Decision, Step, Trace
from jobs.run.journal import JournalWriter, read_journal
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
