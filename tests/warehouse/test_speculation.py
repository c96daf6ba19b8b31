"""Steps, verdicts, tokens and drafts: the views against the traces' own properties."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engine import Role
from harness.trace import Candidate, Step, Trace, Verdict
from jobs.finished.grading import grade_candidates
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, Unit
from tests.warehouse import runs
from tests.warehouse.conftest import Ask, Loaded, views
from warehouse.suites.measured import measure, runs_like

RESULTS = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "written", "place", "num_repeated"),
    [
        ("Let us see.\n\n \n", "So two.\n", "new step", 0),
        ("First.\n\nThen", " So 2.\n\n", "begun step", 1),
    ],
)
def test_a_step_is_begun_where_the_one_before_ends_without_a_blank_line(
    tmp_path: Path, before: str, written: str, place: str, num_repeated: int
) -> None:
    folder = runs.create(tmp_path)
    traces = [runs.speculative(unit, refused=True) for unit in runs.planned(folder)]
    for trace in traces:
        trace.steps[0].text, trace.steps[1].text = before, written
    with views(folder, traces) as ask:
        [row] = ask("refusals")
    assert (row["place"], row["num_decisions"], row["num_repeated"]) == (place, 6, 6 * num_repeated)


def test_tokens_are_those_of_the_traces(loaded: Loaded, ask: Ask) -> None:
    roles: tuple[Role, ...] = ("draft", "target")
    split = {row["model"]: row for row in ask("token_split", loaded.speculative)}
    for role in roles:
        steps = [step for trace in loaded.traces for step in trace.steps if step.author == role]
        calls = [call for trace in loaded.traces for call in trace.calls if call.model == role]
        assert split[role]["emitted_tokens"] == sum(step.num_tokens for step in steps)
        assert split[role]["spent_tokens"] == sum(trace.spent_tokens(role) for trace in loaded.traces)
        assert split[role]["critical_path_tokens"] == sum(call.longest_output_tokens for call in calls)
        assert split[role]["emitted_tokens_per_sample"] == pytest.approx(split[role]["emitted_tokens"] / 5)
    for column in ("emitted_tokens", "critical_path_tokens"):
        assert sum(row[column] for row in split.values()) == sum(getattr(trace, column) for trace in loaded.traces)


def test_odd_verdicts_are_kept(tmp_path: Path) -> None:
    """A score, an impossible option, a rejection without a question: as SpecReason and SCoT write them."""
    folder = runs.create(tmp_path, replace(runs.SPEC, method="scot"))
    scored, unasked, _ = (runs.speculative(unit) for unit in runs.planned(folder)[:3])
    digits = tuple(str(i) for i in range(10))
    logprobs = (-math.inf, *(math.log(0.1) for _ in digits[1:]))
    scored.steps[1].verdicts = [Verdict("score", "Score?", digits, logprobs, 7, 6.5, False)]
    unasked.steps = [Step("target", "rethink", "Anew.", 9, (), "eos", candidates=unasked.steps[1].candidates)]
    with views(folder, [scored, unasked]) as ask:
        [rate] = ask("fallback_rate")
        [step] = [row for row in ask("step") if row["verdict_kind"] == "score"]
        assert ask("draft_selection") == []
    assert (rate["num_verdicts"], rate["num_refused"], rate["num_refused_unasked"]) == (1, 1, 1)
    names = ("score", "decision", "probability", "mass")
    assert [step[f"verdict_{name}"] for name in names] == pytest.approx([6.5, 7, 1 / 9, 0.9])


def test_several_verdicts_of_a_step_are_rows_with_their_models_and_the_last_one_decides(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    asked = runs.speculative(runs.planned(folder)[0])
    shares = (math.log(0.75), math.log(0.25))
    unsure = replace(runs.choice(2, False), model="draft")
    asked.steps[1].verdicts = [unsure, Verdict("reward", "", ("+", "-"), shares, 0, 0.75, True, "reward")]
    with views(folder, [asked]) as ask:
        found = [(row["model"], row["kind"], row["decided"]) for row in ask("verdict", order="verdict_index")]
        [step] = [step for step in ask("step") if step["verdict_kind"]]
        [row] = ask("fallback_rate")
        by_model = [(row["model"], row["num_verdicts"], row["num_decided"]) for row in ask("verdicts_by_model")]
    assert found == [("draft", "choice", False), ("reward", "reward", True)]
    assert (step["verdict_model"], step["decision_kind"], step["decision_value"]) == ("reward", "reward", 0.75)
    assert (row["num_decisions"], row["num_refused"]) == (1, 0)
    assert sorted(by_model) == [("draft", 1, 0), ("reward", 1, 1)]


def test_the_answer_is_what_follows_the_thought(tmp_path: Path) -> None:
    """A step of its own behind the thought; thought and answer in one step; two steps behind it; neither."""
    folder = runs.create(tmp_path)
    units = runs.planned(folder)[:4]
    own, shared, later, none = (runs.vanilla(unit, tokens=40) for unit in units)
    own.steps = [
        runs.step("draft", "draft", "Thinking.</think>\n\n", 10),
        runs.step("target", "answer", "It is 2.", 5),
    ]
    shared.steps[0].text = "0123456789ab</think>\n123456\n"  # 28 characters, 6 of them the answer
    later.steps = [
        runs.step("draft", "draft", "Hm.</think>", 10),
        runs.step("draft", "draft", "So\n\n", 3),
        runs.step("target", "fallback", "2.", 4),
    ]
    none.steps[0].text = "The answer is 2."
    sql = RESULTS.partition("\nLength of the final answer")[2].partition("```sql\n")[2].partition(";\n```")[0]
    with views(folder, [own, shared, later, none]) as ask:
        found = {
            (row["sample_id"], row["author"]): (row["num_tokens"], row["is_estimated"]) for row in ask("sample_answer")
        }
        [length] = ask(f"({sql})")
    estimate = 40 * 6 / 28
    assert found == {
        (units[0].sample_id, "draft"): (0, False),
        (units[0].sample_id, "target"): (5, False),
        (units[1].sample_id, "target"): (pytest.approx(estimate, abs=1e-6), True),
        (units[2].sample_id, "draft"): (3, False),
        (units[2].sample_id, "target"): (4, False),
    }
    assert (length["num_answers"], length["num_estimated"]) == (3, 1)
    assert length["mean_tokens"] == pytest.approx((5 + estimate + 7) / 3, abs=0.05)


@pytest.mark.parametrize(("think_end_id", "is_estimated"), [(7, False), (99, True)])
def test_the_tokens_of_an_answer_are_counted_in_the_ids_of_the_trace(
    tmp_path: Path, think_end_id: int, is_estimated: bool
) -> None:
    """Of 20 tokens 12 follow the last </think>, of 16 characters 3; 99 is an id that the trace does not hold."""
    folder = runs.create(tmp_path)
    trace = runs.vanilla(runs.planned(folder)[0], tokens=20)
    trace.steps[0].text = "Seven</think>555"
    trace.steps[0].token_ids = (1, 7, 2, 3, 4, 5, 6, 7, *range(100, 112))
    engines = {"target": {"think_end_id": think_end_id}, "startup_seconds": 1.0}
    runs.write_part(folder, [trace], engines=engines)
    with views(folder) as ask:
        [answer] = ask("sample_answer")
    assert answer["is_estimated"] == is_estimated
    assert answer["num_tokens"] == pytest.approx(20 * 3 / 16 if is_estimated else 12, abs=1e-6)


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


def test_selection_is_judged_by_class(tmp_path: Path) -> None:
    """Of problem 0 (gold 2): right taken, wrong taken though a right one existed, refused with cause, and without."""
    folder = runs.create(tmp_path, replace(SCOT, samples=4, num_problems=1))
    chosen = [((WRONG, RIGHT), 1), ((RIGHT, WRONG), 1), ((WRONG, WRONG + " "), None), ((RIGHT, WRONG), None)]
    traces = [selected(unit, *how) for unit, how in zip(runs.planned(folder), chosen, strict=True)]
    with views(folder, traces) as ask:
        assert ask("draft_selection_accuracy") == []
    assert [grade_candidates(folder, workers=1) for _ in range(2)] == [8, 0]
    with views(folder) as ask:
        first, second = ask("draft_selection_accuracy", order='"class"')
        names = ("drafts_chosen_right", "drafts_rejected_right")
        of_paper = [measure(ask.connection, name, folder.path.name) for name in names]
    assert [one and one.estimate for one in of_paper] == pytest.approx([1 / 3, 1])
    assert (first["class"], first["num_samples"], first["num_right"], first["num_rejected"]) == (1, 3, 1, 1)
    assert (second["class"], second["num_samples"], second["accuracy"]) == (2, 1, 1)
    accuracies = [first["accuracy"], first["accuracy_of_any_draft"], second["accuracy_of_any_draft"]]
    assert accuracies == pytest.approx([1 / 3, 1 / 2, 0])


def test_drafts_of_a_failed_try_make_no_class(tmp_path: Path) -> None:
    """A sample fails after its selection and succeeds when it is retried, with other drafts."""
    folder = runs.create(tmp_path, SCOT)
    unit = runs.planned(folder)[0]
    runs.write_part(folder, [runs.ended(selected(unit, (WRONG, RIGHT), 0), "error", "engine lost")], "a0")
    assert grade_candidates(folder, workers=1) == 0
    runs.write_part(folder, [selected(unit, (RIGHT, WRONG), 0)], "a1")
    assert grade_candidates(folder, workers=1) == 2
    with views(folder) as ask:
        [row] = ask("draft_selection_accuracy")
    assert (row["class"], row["num_samples"], row["num_right"]) == (1, 1, 1)


def scores(folder: RunFolder, *rows: tuple[str, int | None, float | None]) -> None:
    """Write scores of a process reward model for step 1 of samples: of a candidate, or of the step itself (None)."""
    scored = [
        {"sample_id": sample_id, "step_index": 1, "candidate_index": candidate, "score": score, "scorer": "prm@1"}
        | {"missing": "too long" if score is None else None}
        for sample_id, candidate, score in rows
    ]
    derived.write(folder, "scores", "prm", scored)


def test_step_quality_of_drafts_and_of_what_was_selected(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    traces = [runs.speculative(unit, refused=i == 1) for i, unit in enumerate(runs.planned(folder)[:2])]
    first, second = (trace.sample_id for trace in traces)
    scores(
        folder,
        *((first, 0, 0.9), (first, 1, 0.4), (second, 0, 0.2), (second, 1, 0.3)),
        *((first, None, 0.9), (second, None, 0.8), ("f" * 16, 0, 1.0)),  # the last one is not in the plan
    )
    with views(folder, traces) as ask:
        [row] = ask("step_quality")
    assert (row["num_candidates"], row["num_selected"], row["num_steps"]) == (4, 1, 2)
    qualities = [row[f"{name}_quality"] for name in ("draft", "selected", "draft_step", "fallback")]
    assert qualities == pytest.approx([0.45, 0.9, 0.9, 0.8])
    assert row["gain"] == pytest.approx(0.9 - (0.9 + 0.4) / 2)  # within the step; the refused step has none


def test_what_has_no_score_is_in_no_mean_and_is_counted(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, replace(runs.SPEC, engine=EngineSpec("vllm")))
    traces = [runs.speculative(unit) for unit in runs.planned(folder)[:3]]
    first, second, third = (trace.sample_id for trace in traces)
    scores(
        folder,
        *((first, 0, 0.9), (first, 1, None), (second, 0, None), (second, 1, 0.3)),
        *((third, 0, None), (third, 1, None), (first, None, 0.9), (second, None, None)),
    )
    with views(folder, traces) as ask:
        [row] = ask("step_quality")
        names = ("draft_quality", "selected_quality")
        measured = [measure(ask.connection, name, folder.path.name) for name in names]
        [run] = runs_like(ask.connection, {"method": "speccot", "dataset": "toy"})
    assert (row["num_candidates"], row["num_missing_candidates"]) == (2, 4)
    assert (row["num_steps"], row["num_missing_steps"], row["step_quality"]) == (1, 1, pytest.approx(0.9))
    assert (row["num_selected"], row["gain"]) == (1, pytest.approx(0))
    assert [one and one.estimate for one in measured] == pytest.approx([0.6, 0.9])
    assert row["draft_quality"] == pytest.approx(0.6)
    assert (run["num_unscored"], run["num_candidates"], len(run["why_unscored"])) == (4, 6, 1)
