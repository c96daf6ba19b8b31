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
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec
from tests.warehouse import runs
from tests.warehouse.conftest import Ask, Loaded
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run
from warehouse.report.summary import summaries


def test_the_fallback_rate_is_the_share_of_refusing_verdicts(loaded: Loaded, ask: Ask) -> None:
    [row] = ask("fallback_rate", loaded.speculative)
    assert (row["num_verdicts"], row["num_refused"], row["num_refused_unasked"]) == (5, 2, 0)
    assert row["fallback_rate"] == pytest.approx(0.4)
    assert row["mean_option_mass"] == pytest.approx(0.8)
    [row] = ask("fallback_rate", loaded.vanilla)
    assert (row["num_verdicts"], row["fallback_rate"]) == (0, None)


def test_rejections_that_the_target_repeats_are_counted_by_place(loaded: Loaded, ask: Ask) -> None:
    [row] = ask("refusals", loaded.speculative)
    assert row["place"] == "begun step", "the guidance of these traces ends inside a step"
    assert (row["num_decisions"], row["num_refused"], row["num_repeated"]) == (5, 2, 2)
    assert (row["refusal_rate"], row["share_repeated"]) == (pytest.approx(0.4), 1.0)
    assert ask("refusals", loaded.vanilla) == []


@pytest.mark.parametrize(
    ("before", "written", "place", "num_repeated"),
    [
        ("Let us see.\n\n", "So 2.\n", "new step", 1),
        ("First.\n\nThen", " So 2.\n\n", "begun step", 1),
        ("First.\n\n \n", "So two.\n", "new step", 0),
        ("First.", "\tSo 2.", "begun step", 1),
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


def test_rates_by_position(loaded: Loaded, ask: Ask) -> None:
    [row] = ask("acceptance_by_position", loaded.speculative)
    assert (row["step_index"], row["num_decisions"], row["num_accepted"]) == (1, 5, 3)
    assert row["acceptance_rate"] == pytest.approx(0.6)


def test_a_verdict_keeps_its_whole_probability_vector(loaded: Loaded, ask: Ask) -> None:
    row = next(row for row in ask("step", loaded.speculative) if row["verdict_kind"] and row["verdict_accepted"])
    assert row["verdict_options"] == ["1", "2", "3"]
    assert row["verdict_logprobs"] == pytest.approx([math.log(p) for p in (0.5, 0.2, 0.1)])
    assert row["verdict_probability"] == pytest.approx(0.5 / 0.8)
    assert row["verdict_mass"] == pytest.approx(0.8)


def test_how_often_each_option_is_taken(loaded: Loaded, ask: Ask) -> None:
    options = [(r["option_index"], r["is_reject"], r["num_chosen"]) for r in ask("draft_selection", loaded.speculative)]
    assert options == [(0, False, 3), (1, False, 0), (2, True, 2)]


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
    assert sum(row["emitted_tokens"] for row in split.values()) == sum(t.emitted_tokens for t in loaded.traces)
    assert sum(row["critical_path_tokens"] for row in split.values()) == sum(
        t.critical_path_tokens for t in loaded.traces
    )
    assert sum(row["emitted_share"] for row in split.values()) == pytest.approx(1)


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
    asked, _ = (runs.speculative(unit) for unit in runs.planned(folder)[:2])
    shares = (math.log(0.75), math.log(0.25))
    unsure = replace(runs.choice(2, False), model="draft")
    rated = Verdict("reward", "", ("+", "-"), shares, 0, 0.75, True, "reward")
    asked.steps[1].verdicts = [unsure, rated]
    runs.write_part(folder, [asked])
    load_run(folder, database)
    with reader(database) as connection:
        found = rows(connection, "FROM verdict ORDER BY verdict_index")
        assert [(row["model"], row["kind"], row["decided"]) for row in found] == [
            ("draft", "choice", False),
            ("reward", "reward", True),
        ]
        assert [row["probability"] for row in found] == pytest.approx([0.1 / 0.8, 0.75])
        [step] = rows(connection, "FROM step WHERE verdict_kind IS NOT NULL")
        assert (step["verdict_model"], step["decision_kind"], step["decision_value"]) == ("reward", "reward", 0.75)
        [row] = Ask(connection)("fallback_rate", folder)
        assert (row["num_decisions"], row["num_refused"]) == (1, 0)
        by_model = rows(connection, "FROM verdicts_by_model ORDER BY model")
        assert [(row["model"], row["num_verdicts"], row["num_decided"]) for row in by_model] == [
            ("draft", 1, 0),
            ("reward", 1, 1),
        ]


def test_steps_by_author(loaded: Loaded, ask: Ask) -> None:
    """Five samples of three steps; guidance and answer by the target, the middle one by the draft in three of five."""
    steps = {row["author"]: row for row in ask.question("What share of the steps", loaded.speculative)}
    assert (steps["draft"]["num_steps"], steps["target"]["num_steps"]) == (3, 12)
    assert steps["draft"]["steps_per_sample"] == pytest.approx(3 / 5)
    assert steps["draft"]["share"] == pytest.approx(3 / 10)


def test_reflective_words_are_whole_words_in_any_case(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    text = "Wait, wait. But butter awaits: Hmm, hmmm, hm! Home. BUT 2.\n"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text=text)])
    load_run(folder, database)
    with reader(database) as connection:
        found = Ask(connection).question('Which model writes "wait"', folder)
    words = {(row["role"], row["word"]): row for row in found}
    assert {word: words[("draft", word)]["occurrences"] for word in ("wait", "but", "hmm")} == {
        "wait": 2,
        "but": 2,
        "hmm": 3,
    }
    assert words[("draft", "wait")]["per_thousand_tokens"] == pytest.approx(2000 / 6, abs=0.01)
    assert words[("guidance", "wait")]["occurrences"] == 0


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
        [length] = Ask(connection).question("How long is the final answer", folder)
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


@pytest.mark.parametrize(("think_end_id", "is_estimated"), [(7, False), (None, True), (99, True)])
def test_the_tokens_of_an_answer_are_counted_in_the_ids_of_the_trace(
    tmp_path: Path, think_end_id: int | None, is_estimated: bool
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


def _speculating(tmp_path: Path, database: Path, engine: EngineSpec, **changes: object) -> RunFolder:
    """A loaded run of specdecode whose calls say what was proposed and confirmed."""
    spec = replace(runs.SPEC, method="specdecode", params={}, engine=engine, **changes)  # type: ignore[arg-type]
    folder = runs.create(tmp_path, spec)
    traces = [runs.vanilla(unit, tokens=40) for unit in runs.planned(folder)]
    for trace in traces:
        trace.calls = [replace(call, proposed_tokens=30, confirmed_tokens=20) for call in trace.calls]
    runs.write_part(folder, traces)
    load_run(folder, database)
    return folder


def test_greedy_drafts_at_temperature_0_are_no_weaker_baseline(tmp_path: Path, database: Path) -> None:
    engine = EngineSpec("vllm", spec_decode="draft", spec_tokens=5, spec_sampling="greedy")
    folder = _speculating(tmp_path, database, engine, temperature=0.0)
    with reader(database) as connection:
        [row] = Ask(connection)("token_speculation_setting", folder)
        [summary] = summaries(connection, [folder.path.name])
    assert row["is_weaker_baseline"] is False
    assert not [line for line in summary.warnings if line.startswith("GREEDY DRAFTS")]
