"""Never on test questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.training.training_examples import check_dataset, compare_with_benchmarks
from tests.harness.training.folders import data_dir, problems
from tests.shared import DATA_DIR, shared_file


def test_only_training_data_may_be_trained_on() -> None:
    for name in benchmarks.DATASETS:
        if name in {"gsm8k-train", "demo-train"}:
            check_dataset(name)
        elif name == "gsm8k-scot":
            check_dataset(name, accepts_test_questions=True)
            with pytest.raises(ValueError, match="contains the test questions 500 to 999 of gsm8k"):
                check_dataset(name)
        else:
            with pytest.raises(ValueError, match=f"^{name} is not training data"):
                check_dataset(name)


def test_a_problem_that_a_benchmark_asks_too_is_refused(tmp_path: Path) -> None:
    folder = data_dir(tmp_path, gsm8k="  What is 7\n+ 2? ")
    assert "gsm8k" in compare_with_benchmarks(problems(2), folder).compared
    with pytest.raises(ValueError, match=r"of gsm8k \(gsm8k-train/2 is gsm8k/0\)"):
        compare_with_benchmarks(problems(3), folder)


def test_what_scots_program_trains_on_is_accepted_when_asked_and_nothing_else() -> None:
    folder = shared_file("gsm8k", DATA_DIR).parent
    asked = benchmarks.load("gsm8k-scot", folder)
    texts = [[problem.text for problem in benchmarks.load(name, folder)] for name in ("gsm8k", "gsm8k-train")]
    assert [problem.text for problem in asked] == [*texts[0][500:1000], *texts[1][:1000]]
    assert compare_with_benchmarks(asked, folder, accepts_test_questions=True).accepted == {"gsm8k": 500}
    with pytest.raises(ValueError, match=r"500 training problems are test questions of gsm8k"):
        compare_with_benchmarks(asked, folder)
    with pytest.raises(ValueError, match=r"gsm8k/499"):
        compare_with_benchmarks(benchmarks.load("gsm8k", folder)[499:500], folder, accepts_test_questions=True)


def test_benchmarks_that_are_not_here_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, folder: Path | None = None) -> list[Problem]:
        if name == "demo":
            return benchmarks.load_recorded(name).problems
        raise benchmarks.DatasetNotFound(name)

    monkeypatch.setattr(benchmarks, "load", absent)
    comparison = compare_with_benchmarks(problems(2), tmp_path)
    assert comparison.compared == ("demo",)
    assert "gsm8k" in comparison.missing_benchmarks
    assert "gsm8k-train" not in comparison.missing_benchmarks
