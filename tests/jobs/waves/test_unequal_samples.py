"""A run in waves whose problems have unequal numbers of samples: every mean is one over problems of their means."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from harness.engine import Sampling
from harness.engines import factory
from harness.engines.scripted import ScriptedEngine
from harness.problems import benchmarks
from jobs import suite
from jobs.run import waves
from jobs.run.folder import RunFolder, run_folders
from jobs.waves import comparison, looking
from jobs.waves.looking import Found
from jobs.waves.planned import of_suite
from warehouse.comparison.contrasts import Settings
from warehouse.comparison.named_runs import compare_runs
from warehouse.database import reader, rows
from warehouse.statistics.bounded import paired_difference

SUITE = """
output = "{output}"
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 8
samples = 16

[[run]]
method = "vanilla"

[[run]]
method = "vanilla"
model = "draft"
"""
NUM_UNSURE = 4
SECOND_WAVE = 8


class Interrupted(Exception):
    """Ends a launch after its second wave."""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """Two waves of two runs that are sure of some problems, and whose answers to the others differ by seed."""
    problems = benchmarks.load("demo")[:8]

    def write(prompt: str, sampling: Sampling) -> Sequence[str]:
        number, problem = next((i, problem) for i, problem in enumerate(problems) if problem.text in prompt)
        is_right = number >= NUM_UNSURE or sampling.seed % 2 > 0
        answer = problem.answer if is_right else "-12345"
        return [f"{'So it is. ' * (1 if number >= NUM_UNSURE else 9)}\\boxed{{{answer}}}"] * sampling.n

    def look(runs: Sequence[RunFolder], database: Path, margin: float, baseline: RunFolder | None) -> Found | None:
        if runs[0].num_planned() == SECOND_WAVE * len(problems):
            raise Interrupted
        return first_look(runs, database, margin, baseline)

    first_look = looking.look
    monkeypatch.setattr(looking, "look", look)
    monkeypatch.setattr(factory, "_scripted", lambda *_: ScriptedEngine(write, lambda _, labels: [1.0] * len(labels)))
    path = tmp_path / "small.toml"
    path.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    with pytest.raises(Interrupted):
        comparison.launch(of_suite(suite.read(path), None), 0.02, Console(quiet=True))
    return run_folders([tmp_path / "runs"])


def test_means_are_those_of_the_problems_means_wherever_they_are_shown(runs: list[RunFolder], tmp_path: Path) -> None:
    database = tmp_path / "runs" / "warehouse.duckdb"
    compared = compare_runs([str(run.path) for run in runs], database, Settings())
    means = {}
    for run in runs:
        verdicts, tokens = _samples(database, run)
        numbers = [len(of_problem) for of_problem in verdicts.values()]
        begun, result = waves.read(run), json.loads(run.results_path.read_bytes())
        assert begun is not None
        assert begun.wave == 2
        assert np.mean(numbers[:NUM_UNSURE]) > np.mean(numbers[NUM_UNSURE:]), "the samples go where they differ"
        assert (result["fewest_samples"], result["k"]) == (min(numbers), max(numbers))
        assert sum(numbers) == result["planned"] == SECOND_WAVE * 8
        means[run.path.name] = np.array([np.mean(of_problem) for of_problem in verdicts.values()])
        own = means[run.path.name].mean()
        assert own != pytest.approx(np.concatenate(list(verdicts.values())).mean()), "not the mean of samples"
        [row] = [row for row in compared.rows if row.run.run_id == run.path.name]
        assert row.result.estimate == pytest.approx(own)
        assert result["pass_at_1"] == pytest.approx(own)
        of_tokens = np.mean([np.mean(of_problem) for of_problem in tokens.values()])
        assert result["emitted_tokens_per_sample"] == pytest.approx(of_tokens)
        with reader(database) as connection:
            sql = "SELECT pass_at_1, graded_pass_at_1 FROM pass_at_1 WHERE run_id = $run"
            [view] = rows(connection, sql, {"run": run.path.name})
        assert (view["pass_at_1"], view["graded_pass_at_1"]) == pytest.approx((own, own))
    [contrast] = [row.contrast for row in compared.rows if row.contrast]
    [other] = [values for name, values in means.items() if name != contrast.baseline]
    expected = paired_difference(other, means[contrast.baseline], contrast.level)
    shown = contrast.difference
    assert (shown.estimate, shown.low, shown.high) == pytest.approx((expected.estimate, expected.low, expected.high))
    assert contrast.level == pytest.approx(0.98951, abs=1e-4)


def _samples(database: Path, run: RunFolder) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Return of every problem which samples are correct, and the emitted tokens of each."""
    verdicts: dict[str, list[float]] = defaultdict(list)
    tokens: dict[str, list[int]] = defaultdict(list)
    sql = "SELECT problem_id, verdict = 'correct' AS is_right, tokens FROM sample_grade JOIN problem USING (run_id, "
    sql += "problem_id) JOIN (SELECT run_id, sample_id, sum(emitted_tokens)::INTEGER AS tokens FROM sample_tokens "
    sql += "GROUP BY ALL) USING (run_id, sample_id) WHERE run_id = $run ORDER BY problem_index, sample_index"
    with reader(database) as connection:
        for problem, is_right, num_tokens in connection.execute(sql, {"run": run.path.name}).fetchall():
            verdicts[problem].append(float(is_right))
            tokens[problem].append(num_tokens)
    return verdicts, tokens
