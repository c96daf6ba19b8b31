"""The journal survives whatever ends its writer."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from harness.engines.scripted import ScriptedEngine, SimulatedModel
from harness.trace import Call, Candidate, Decision, Step, Trace, Verdict
from jobs.run.journal import JournalWriter, read_journal
from jobs.run.spec import Attempt
from tests.harness.scripts import solve

ATTEMPT = Attempt("a", "run", 0, "host", 1, 0.0, None)


def a_step(text: str) -> Step:
    verdict = Verdict("choice", "which?", ("1", "2"), (-0.1, -2.4), 0, None, accepted=True)
    candidate = Candidate(text, 3, "stop", -0.5, option=0, accepted=True)
    return Step("draft", "draft", text, 3, (1, 2, 3), "stop", [candidate], [verdict], 1.5)


def a_call() -> Call:
    return Call("draft", "draft", 0, 2, 10, 8, 6, 3, 1.0, 0.0, 0.1, 0.2, 4)


def write_one(path: Path) -> Trace:
    writer = JournalWriter(path, ATTEMPT)
    trace = Trace("s1", "demo/0", 0, seed=1)
    writer.start(trace)
    for text in ("one\n\n", "two\n\n"):
        trace.calls.append(a_call())
        trace.steps.append(a_step(text))
        writer.step(trace, trace.steps[-1])
    trace.calls.append(a_call())
    trace.stop_reason, trace.latency_seconds = "answered", 2.5
    writer.end(trace)
    writer.close()
    return trace


def test_a_sample_reads_back_equal_and_with_it_an_infinite_log_probability(tmp_path: Path) -> None:
    trace = write_one(tmp_path / "j.jsonl")
    journal = read_journal(tmp_path / "j.jsonl")
    assert (journal.finished, journal.unfinished) == ({"s1": trace}, {})
    assert journal.attempt is not None
    assert journal.attempt["run_id"] == "run"
    trace = Trace("s1", "demo/0", 0, seed=1, steps=[a_step("one")])
    verdict = trace.steps[0].verdict
    assert verdict is not None
    verdict.logprobs = (0.0, float("-inf"))
    writer = JournalWriter(tmp_path / "k.jsonl", ATTEMPT)
    writer.start(trace)
    writer.close()
    assert read_journal(tmp_path / "k.jsonl").unfinished == {"s1": trace}


def test_cut_anywhere_nothing_before_the_cut_is_lost_and_nothing_is_invented(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    trace = write_one(path)
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in sorted({*range(0, len(content), 13), *ends[:-1], *(end - 1 for end in ends)}):
        path.write_bytes(content[:cut])
        journal = read_journal(path)
        whole_lines = sum(end <= cut for end in ends)
        complete = cut + 1 in ends  # all of a line but its newline is still that line
        steps = max(0, min(2, whole_lines + complete - 2))
        read = {**journal.unfinished, **journal.finished}
        assert [s.text for s in (read["s1"].steps if "s1" in read else [])] == [s.text for s in trace.steps[:steps]]
        assert journal.lost_lines == [], "a torn last line is normal"


def test_a_corrupt_line_in_the_middle_is_counted_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write_one(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{torn\n", *lines[3:]]))
    journal = read_journal(path)
    assert len(journal.lost_lines) == 1
    assert list(journal.finished) == ["s1"]


def test_behind_a_lost_step_nothing_of_that_sample_counts(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    trace = write_one(path)
    attempt, start, first, _second, end = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([attempt, start, first, b"{torn\n", end]))
    journal = read_journal(path)
    assert journal.finished == {}
    assert journal.unfinished["s1"].steps == trace.steps[:1]
    assert journal.unfinished["s1"].calls == trace.calls[:1]


def test_nothing_is_written_behind_a_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JournalWriter(tmp_path / "j.jsonl", ATTEMPT)
    trace = Trace("s1", "demo/0", 0, seed=1)
    writer.start(trace)
    whole = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: whole(handle, line[: len(line) // 2]))
    trace.steps.append(a_step("one\n\n"))
    with pytest.raises(OSError, match="is the disk full"):
        writer.step(trace, trace.steps[-1])
    monkeypatch.undo()  # there is room again
    with pytest.raises(OSError, match="an earlier write failed"):
        writer.step(trace, trace.steps[-1])
    writer.close()
    journal = read_journal(tmp_path / "j.jsonl")
    assert journal.unfinished["s1"].steps == []
    assert journal.lost_lines == []


def test_a_disk_that_fails_to_sync_stops_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(handle: int) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    writer = JournalWriter(tmp_path / "j.jsonl", ATTEMPT)
    writer._syncer.join(10)
    with pytest.raises(OSError, match="input/output error"):
        writer.start(Trace("s1", "demo/0", 0, seed=1))
    monkeypatch.undo()
    writer.close()


def test_two_attempts_never_share_a_file(tmp_path: Path) -> None:
    JournalWriter(tmp_path / "j.jsonl", ATTEMPT).close()
    with pytest.raises(FileExistsError):
        JournalWriter(tmp_path / "j.jsonl", ATTEMPT)


async def test_a_call_is_written_once_and_for_what_it_was_in_the_end(tmp_path: Path) -> None:
    """A draft begun before its turn is recorded when it is used or known to be discarded, not before."""
    model = SimulatedModel(skill=0.6)
    purposes: set[str] = set()
    for seed in range(6):
        path = tmp_path / f"{seed}.jsonl"
        writer, trace = JournalWriter(path, ATTEMPT), Trace("s1", "demo/0", 0, seed=seed)
        writer.start(trace)
        engines = {role: ScriptedEngine(model.write, model.judge) for role in ("draft", "target")}
        await solve("specreason", engines, trace=trace, on_step=partial(writer.step, trace), lookahead=True)
        writer.end(trace)
        writer.close()
        assert read_journal(path).finished["s1"].calls == trace.calls
        purposes |= {call.purpose for call in trace.calls}
    assert purposes == {"draft", "verdict", "lookahead", "fallback"}


CONFIDENT = Decision.at_least("confidence", 0.4, 0.65)
DECIDED = Step("target", "fallback", "one\n\n", 3, (1, 2, 3), "stop", elapsed_seconds=1.5, decision=CONFIDENT)


def write_steps(path: Path, *steps: Step) -> None:
    """Write the journal of a sample that goes on after the first of these steps."""
    writer = JournalWriter(path, ATTEMPT)
    trace = Trace("s1", "demo/0", 0, seed=1, steps=[steps[0]])
    writer.start(trace)
    for step in steps[1:]:
        trace.steps.append(step)
        writer.step(trace, step)
    writer.close()


def test_a_decision_comes_back_from_the_journal_also_where_its_step_was_carried_over(tmp_path: Path) -> None:
    write_steps(tmp_path / "j.jsonl", DECIDED, a_step("two\n\n"), DECIDED)
    [trace] = read_journal(tmp_path / "j.jsonl").unfinished.values()
    assert [step.decision for step in trace.steps] == [CONFIDENT, None, CONFIDENT]


def test_a_journal_with_an_invalid_decision_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    broken = Step("draft", "draft", "one", 1, (1,), "stop", decision=Decision("a", None, None, accepted=True))
    assert broken.decision is not None
    broken.decision.kind = "<b>" * 50
    write_steps(path, a_step("one\n\n"), broken)
    assert read_journal(path).lost_lines[0] > 1
