"""The quality of drafts: selection by class, scores of a process reward model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.trace import Candidate, Trace
from jobs.finished.grading import grade_candidates
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, Unit
from tests.warehouse import runs
from tests.warehouse.conftest import Ask
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.suites.measured import measure, runs_like

SCOT = replace(runs.SPEC, method="scot", params={"drafts": 2})
RIGHT, WRONG = "So it is \\boxed{2}.", "So it is \\boxed{3}."


def selected(unit: Unit, drafts: tuple[str, ...], taken: int | None) -> Trace:
    """A sample of SCoT: whole drafts, one of them taken or all refused."""
    trace = runs.speculative(unit, refused=taken is None)
    trace.steps = trace.steps[1:]
    trace.steps[0].role = "rethink" if taken is None else "draft"
    trace.steps[0].candidates = [
        Candidate(text, 6, "stop", -0.5, index, index == taken) for index, text in enumerate(drafts)
    ]
    return trace


def scot(tmp_path: Path) -> RunFolder:
    """Four samples of problem 0 (gold 2): right taken, wrong taken though a right one existed, refused with cause,
    refused without."""
    folder = runs.create(tmp_path, replace(SCOT, samples=4, num_problems=1))
    chosen = [((WRONG, RIGHT), 1), ((RIGHT, WRONG), 1), ((WRONG, WRONG + " "), None), ((RIGHT, WRONG), None)]
    units = runs.planned(folder)
    runs.write_part(folder, [selected(unit, *how) for unit, how in zip(units, chosen, strict=True)])
    return folder


def test_selection_is_judged_by_class(tmp_path: Path) -> None:
    folder, database = scot(tmp_path), tmp_path / "w.duckdb"
    load_run(folder, database)
    with reader(database) as connection:
        assert Ask(connection)("draft_selection_accuracy", folder) == []
    assert grade_candidates(folder, workers=1) == 8
    assert grade_candidates(folder, workers=1) == 0
    load_run(folder, database)
    with reader(database) as connection:
        first, second = Ask(connection)("draft_selection_accuracy", folder, '"class"')
        names = ("drafts_chosen_right", "drafts_rejected_right")
        of_paper = [measure(connection, name, folder.path.name) for name in names]
    assert [one and one.estimate for one in of_paper] == pytest.approx([1 / 3, 1])
    assert (first["class"], first["num_samples"], first["num_right"], first["num_rejected"]) == (1, 3, 1, 1)
    assert first["accuracy"] == pytest.approx(1 / 3)
    assert first["accuracy_of_any_draft"] == pytest.approx(1 / 2)
    assert second["accuracy_of_any_draft"] == 0
    assert (second["class"], second["num_samples"], second["accuracy"]) == (2, 1, 1)


def test_drafts_of_a_failed_try_make_no_class(tmp_path: Path) -> None:
    """A sample fails after its selection and succeeds when it is retried, with other drafts."""
    folder, database = runs.create(tmp_path, SCOT), tmp_path / "w.duckdb"
    unit = runs.planned(folder)[0]
    runs.write_part(folder, [runs.ended(selected(unit, (WRONG, RIGHT), 0), "error", "engine lost")], "a0")
    assert grade_candidates(folder, workers=1) == 0
    runs.write_part(folder, [selected(unit, (RIGHT, WRONG), 0)], "a1")
    assert grade_candidates(folder, workers=1) == 2
    load_run(folder, database)
    with reader(database) as connection:
        [row] = Ask(connection)("draft_selection_accuracy", folder)
    assert (row["class"], row["num_samples"], row["num_right"]) == (1, 1, 1)


def scores(folder: RunFolder, *rows: tuple[str, int, int | None, float | None]) -> None:
    names = ("sample_id", "step_index", "candidate_index", "score")
    scores = [
        {**dict(zip(names, row, strict=True)), "scorer": "prm@1", "missing": "too long" if row[3] is None else None}
        for row in rows
    ]
    derived.write(folder, "scores", "prm", scores)


def test_step_quality_of_drafts_and_of_what_was_selected(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    first, second = (unit.sample_id for unit in runs.planned(folder)[:2])
    runs.write_part(
        folder, [runs.speculative(runs.planned(folder)[0]), runs.speculative(runs.planned(folder)[1], refused=True)]
    )
    scores(
        folder,
        (first, 1, 0, 0.9),
        (first, 1, 1, 0.4),
        (second, 1, 0, 0.2),
        (second, 1, 1, 0.3),
        (first, 1, None, 0.9),
        (second, 1, None, 0.8),
        ("f" * 16, 1, 0, 1.0),  # not in the plan
    )
    load_run(folder, database)
    with reader(database) as connection:
        [row] = Ask(connection)("step_quality", folder)
    assert (row["num_candidates"], row["num_selected"], row["num_steps"]) == (4, 1, 2)
    assert row["draft_quality"] == pytest.approx(0.45)
    assert row["selected_quality"] == pytest.approx(0.9)
    assert row["gain"] == pytest.approx(0.9 - (0.9 + 0.4) / 2)  # within the step; the refused step has none
    assert (row["draft_step_quality"], row["fallback_quality"]) == (pytest.approx(0.9), pytest.approx(0.8))


def test_what_has_no_score_is_in_no_mean_and_is_counted(tmp_path: Path) -> None:
    spec = replace(runs.SPEC, engine=EngineSpec("vllm"))
    folder, database = runs.create(tmp_path, spec), tmp_path / "w.duckdb"
    units = runs.planned(folder)[:3]
    runs.write_part(folder, [runs.speculative(unit) for unit in units])
    first, second, third = (unit.sample_id for unit in units)
    scores(
        folder,
        *((first, 1, 0, 0.9), (first, 1, 1, None), (second, 1, 0, None), (second, 1, 1, 0.3)),
        *((third, 1, 0, None), (third, 1, 1, None), (first, 1, None, 0.9), (second, 1, None, None)),
    )
    load_run(folder, database)
    with reader(database) as connection:
        [row] = Ask(connection)("step_quality", folder)
        quality, selected = (
            measure(connection, name, folder.path.name) for name in ("draft_quality", "selected_quality")
        )
        [run] = runs_like(connection, {"method": "speccot", "dataset": "toy"})
    assert (row["num_candidates"], row["num_missing_candidates"]) == (2, 4)
    assert (row["num_steps"], row["num_missing_steps"], row["step_quality"]) == (1, 1, pytest.approx(0.9))
    assert (row["num_selected"], row["gain"]) == (1, pytest.approx(0))
    assert [one and one.estimate for one in (quality, selected)] == pytest.approx([0.6, 0.9])
    assert row["draft_quality"] == pytest.approx(0.6)
    assert (run["num_unscored"], run["num_candidates"], len(run["why_unscored"])) == (4, 6, 1)
