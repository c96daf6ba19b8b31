"""Steps, verdicts and tokens: the views against the traces' own properties."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harness.engine import Role
from harness.trace import Step, Verdict
from jobs.run import trace_files
from tests.warehouse import runs
from tests.warehouse.conftest import Ask, Loaded
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run


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
    runs.write_part(folder, traces)
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = rows(connection, "FROM refusals")
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
    folder, database = runs.create(tmp_path, replace(runs.SPEC, method="scot")), tmp_path / "w.duckdb"
    scored, unasked, _ = (runs.speculative(unit) for unit in runs.planned(folder)[:3])
    digits = tuple(str(i) for i in range(10))
    logprobs = (-math.inf, *(math.log(0.1) for _ in digits[1:]))
    scored.steps[1].verdicts = [Verdict("score", "Score?", digits, logprobs, 7, 6.5, False)]
    unasked.steps = [Step("target", "rethink", "Anew.", 9, (), "eos", candidates=unasked.steps[1].candidates)]
    runs.write_part(folder, [scored, unasked])
    load_run(folder, database)
    with reader(database) as connection:
        [row] = Ask(connection)("fallback_rate", folder)
        assert (row["num_verdicts"], row["num_refused"], row["num_refused_unasked"]) == (1, 1, 1)
        [row] = rows(connection, "SELECT * FROM step WHERE verdict_kind = 'score'")
        assert (row["verdict_score"], row["verdict_decision"]) == (6.5, 7)
        assert row["verdict_probability"] == pytest.approx(1 / 9)
        assert row["verdict_mass"] == pytest.approx(0.9)
        assert Ask(connection)("draft_selection", folder) == []


def test_several_verdicts_of_a_step_are_rows_with_their_models_and_the_last_one_decides(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    asked = runs.speculative(runs.planned(folder)[0])
    shares = (math.log(0.75), math.log(0.25))
    unsure = replace(runs.choice(2, False), model="draft")
    rated = Verdict("reward", "", ("+", "-"), shares, 0, 0.75, True, "reward")
    asked.steps[1].verdicts = [unsure, rated]
    runs.write_part(folder, [asked])
    load_run(folder, database)
    with reader(database) as connection:
        ask = Ask(connection)
        found = [(row["model"], row["kind"], row["decided"]) for row in ask("verdict", folder, "verdict_index")]
        assert found == [("draft", "choice", False), ("reward", "reward", True)]
        [step] = [step for step in ask("step", folder) if step["verdict_kind"]]
        assert (step["verdict_model"], step["decision_kind"], step["decision_value"]) == ("reward", "reward", 0.75)
        [row] = ask("fallback_rate", folder)
        assert (row["num_decisions"], row["num_refused"]) == (1, 0)
        by_model = [(row["model"], row["num_verdicts"], row["num_decided"]) for row in ask("verdicts_by_model", folder)]
        assert sorted(by_model) == [("draft", 1, 0), ("reward", 1, 1)]


def test_the_answer_is_what_follows_the_thought(tmp_path: Path) -> None:
    """A step of its own behind the thought; thought and answer in one step; neither."""
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
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
    runs.write_part(folder, [own, shared, later, none])
    load_run(folder, database)
    with reader(database) as connection:
        throughput = {
            (r["sample_id"], r["author"]): (r["num_tokens"], r["is_estimated"])
            for r in Ask(connection)("sample_answer", folder)
        }
        [length] = Ask(connection).question("Length of the final answer", folder)
    estimate = 40 * 6 / 28
    assert throughput == {
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
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    [unit, *_] = runs.planned(folder)
    trace = runs.vanilla(unit, tokens=20)
    trace.steps[0].text = "Seven</think>555"
    trace.steps[0].token_ids = (1, 7, 2, 3, 4, 5, 6, 7, *range(100, 112))
    engines = {"target": {"think_end_id": think_end_id}, "startup_seconds": 1.0}
    attempt = replace(runs.attempt(folder.path.name), engines=engines)
    metadata = {"attempt": json.dumps(asdict(attempt))}
    trace_files.write_table(folder.trace_files_dir / "a0.parquet", trace_files.TRACES, [asdict(trace)], metadata)
    load_run(folder, database)
    with reader(database) as connection:
        [answer] = Ask(connection)("sample_answer", folder)
    assert answer["is_estimated"] == is_estimated
    assert answer["num_tokens"] == pytest.approx(20 * 3 / 16 if is_estimated else 12, abs=1e-6)
