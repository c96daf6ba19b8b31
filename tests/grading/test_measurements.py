"""Each measurement counts its answers; the baseline and the timed grader agree with the grader."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict

import pytest

from grading import Gold, measurements
from grading.measurements import answers, grade_bare, timed

GOLDS = [Gold("42"), Gold(r"\frac{3}{4}")]


def test_measurements_in_this_process_count_the_same_answers() -> None:
    bare = measurements.bare(GOLDS, 4, remembers_golds=True)
    own = measurements.in_process(GOLDS, 4)
    assert bare["answers"] == own["answers"] == 8
    assert own["correct"] == 6
    assert 0 < bare["correct"] <= 6
    assert own["cpu_seconds"] > 0


def test_the_pool_is_measured_with_its_memory() -> None:
    measurement = measurements.pool(GOLDS, 4, workers=1, time_limit_seconds=10)
    assert measurement["answers"] == 7  # the clock starts with the first grade
    assert measurement["verdicts"] == {"correct": 6, "wrong": 2}
    assert measurement["peak_bytes"] >= measurement["peak_worker_bytes"] >= 0


def test_a_measurement_reads_and_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = {"golds": [asdict(gold) for gold in GOLDS], "samples": 4}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    monkeypatch.setattr(sys, "argv", ["measure", "in_process"])
    measurements.main()
    assert json.loads(capsys.readouterr().out)["correct"] == 6


def test_the_baseline_accepts_golds_and_rejects_others() -> None:
    items = list(answers(GOLDS, 1))
    assert grade_bare(items, remembers_golds=False) == grade_bare(items, remembers_golds=True) == 2
    (submission, _), (_, other) = items
    assert grade_bare([(submission, other)], remembers_golds=False) == 0


def test_a_timed_grade_has_the_verdict_of_the_grader() -> None:
    submission, gold = next(answers(GOLDS, 1))
    result = timed(submission, gold)
    assert result.verdict == "correct"
    assert result.seconds >= 0
