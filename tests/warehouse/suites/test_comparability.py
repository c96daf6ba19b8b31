"""Why a run of ours may not be read beside a published value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness import prompts
from harness.engines import placement
from harness.engines.speculation import proposer, tokens_at_a_time
from harness.problems import benchmarks
from harness.prompts import parse
from harness.settings.launch_settings import Launch
from harness.training.tuning import Manifest, write_manifest
from harness.weights import models
from warehouse.suites import published as papers
from warehouse.suites.comparability import (
    TIMES_ONLY,
    aligned_from_another,
    choices,
    run_columns,
    why_not,
)

TABLE = papers.load("speccot-table2")
PLAN = next(p for p in papers.planned(TABLE) if p.row.label == "SpecCoT, QwQ-32B" and p.column == "gsm8k")
PAPER = papers.launch_of(PLAN.flags)
UNTRAINED = (
    "the draft is not aligned: give SCoT's aligned draft by --draft",
    "the selector is not tuned: give it by --target.adapter",
)


def faithful(table: papers.Suite, launch: Launch, **changes: Any) -> dict[str, Any]:
    """The row of a finished run exactly as the suite has it, on the paper's machine, but for the changes."""
    count = papers.num_problems(launch)
    gpu = re.findall(r"[AH]\d+[\w-]*", table.devices)[0]
    same = {
        **run_columns(launch),
        "draft_path": launch.draft.model,
        "dataset_size": benchmarks.DATASETS[launch.dataset].count,
        "num_problems": count,
        "first_problems": True,
        "samples": launch.samples,
        "devices": f"{launch.sbatch.get('gpus-per-node', 1)} × NVIDIA {gpu}",
        "engine_kind": "vllm" if "vLLM" in table.engine else "transformers",
        "engine_draft_gpus": launch.draft.gpus and placement.written(launch.draft.gpus),
        "engine_target_gpus": launch.target.gpus and placement.written(launch.target.gpus),
        "engine_draft_tensor_parallel": launch.draft.tensor_parallel or 1,
        "engine_target_tensor_parallel": launch.target.tensor_parallel or 1,
        "engine_spec_tokens": tokens_at_a_time(proposer(launch.method, launch.spec_decode), launch.spec_tokens),
        "scorers": ["math-shepherd-mistral-7b-prm@r1/1"],
        **changes,
    }
    return {"num_finished": same["num_problems"] * same["samples"], **same}


def run(**changes: Any) -> dict[str, Any]:
    return faithful(TABLE, PAPER, **changes)


def reasons(changed: dict[str, Any], metric: str = "latency") -> list[str]:
    return why_not(TABLE, PLAN, PAPER, changed, metric)


def but_wording(reasons: list[str]) -> list[str]:
    """The reasons that a file with the paper's prompts, which is not shipped, would leave."""
    return [reason for reason in reasons if not reason.startswith("own wording (")]


def planned(name: str) -> list[tuple[papers.Suite, papers.Planned, Launch]]:
    table = papers.load(name)
    return [(table, plan, papers.launch_of(plan.flags)) for plan in papers.planned(table)]


def test_candidates_without_a_reward_are_a_reason_against_values_of_a_reward_model() -> None:
    [(table, plan, paper), *_] = planned("speccot-table5")
    missing = {"num_candidates": 168, "num_unscored": 45, "why_unscored": ["longer than the context of 180 tokens"]}
    found = faithful(table, paper, **missing)
    reason = "45 of 168 candidates have no score by the reward model (longer than the context of 180 tokens)"
    assert reason in why_not(table, plan, paper, found, "draft_quality")
    assert reason not in why_not(table, plan, paper, found, "reflection_in_drafts")
    assert reason not in why_not(table, plan, paper, {**found, "num_unscored": 0}, "draft_quality")


def test_the_papers_own_run_is_comparable() -> None:
    assert reasons(run()) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target_name": "small"}, "target small instead of qwq-32b"),
        ({"draft_name": None}, "draft none instead of r1-distill-qwen-1.5b"),
        ({"params": {**PAPER.parameters, "verdict": "separate"}}, "verdict separate instead of joint"),
        ({"token_budget": 512}, "token budget 512 instead of 8192"),
        ({"temperature": 1.0}, "temperature 1.0 instead of 0.6"),
        ({"samples": 1}, "1 samples a problem instead of 5"),
        ({"num_finished": 7}, "only 7 of 6595 samples are finished"),
        ({"devices": "1 × cpu"}, TIMES_ONLY + "on 1 × cpu instead of 4 A100"),
        ({"devices": "2 × NVIDIA A100"}, TIMES_ONLY + "on 2 × NVIDIA A100 instead of 4 A100"),
        (
            {"devices": "4 × NVIDIA A100, 4 × NVIDIA L4"},
            TIMES_ONLY + "on 4 × NVIDIA A100, 4 × NVIDIA L4 instead of 4 A100",
        ),
        ({"engine_kind": "transformers"}, TIMES_ONLY + "transformers instead of vLLM"),
        ({"engine_spec_decode": "ngram"}, TIMES_ONLY + "spec decode ngram instead of none"),
    ],
)
def test_each_stated_condition_that_differs_is_a_reason(changes: dict[str, Any], reason: str) -> None:
    assert reasons(run(**changes)) == [reason]


def test_an_unfinished_run_is_no_choice_whatever_number_of_problems_it_has() -> None:
    assert reasons(run(num_problems=200, num_finished=3)) == ["only 3 of 1000 samples are finished"]


def test_the_machine_is_no_reason_against_an_accuracy() -> None:
    changed = run(devices="1 × cpu", engine_kind="transformers", engine_spec_decode="ngram")
    assert reasons(changed, "tokens") == []


@pytest.mark.parametrize("name", papers.names())
def test_a_run_as_the_suite_has_it_differs_in_nothing_that_the_paper_states(name: str) -> None:
    """What is left holds for everybody, or is a model or a prompt file that the reader has to make."""
    for table, plan, launch in planned(name):
        told = {unlike.why for unlike in table.unlike} | set(UNTRAINED)
        for metric in table.metrics:
            found = set(but_wording(why_not(table, plan, launch, faithful(table, launch), metric)))
            assert found <= told, (plan.row.label, plan.column, metric)


@pytest.mark.parametrize("name", papers.names())
@pytest.mark.parametrize(
    ("condition", "column", "value"),
    [
        ("drafts", "params", 3),
        ("guidance-tokens", "params", 20),
        ("step-tokens", "params", 256),
        ("problems", "num_problems", 20),
        ("samples", "samples", 2),
        ("concurrency", "concurrency", 7),
        ("top-p", "top_p", 0.5),
        ("token-budget", "token_budget", 777),
        ("target", "target_name", "r1-distill-qwen-32b"),
    ],
)
def test_a_change_is_a_reason_in_every_suite_exactly_where_its_paper_states_the_condition(
    name: str, condition: str, column: str, value: Any
) -> None:
    for table, plan, launch in planned(name):
        base = faithful(table, launch)
        now = base["params"].get(condition.replace("-", "_")) if column == "params" else base[column]
        if now is None:  # the method has no such parameter, or no such model
            continue
        value_of = {column: {**base["params"], condition.replace("-", "_"): value} if column == "params" else value}
        open_here = any(condition in u.covers and u.holds_for(plan.row.label, plan.column) for u in table.unstated)
        for metric, of in table.metrics.items():
            before = why_not(table, plan, launch, base, metric)
            after = why_not(table, plan, launch, faithful(table, launch, **value_of), metric)
            concerns = condition != "concurrency" or of.registered.is_of_times
            expected = len(before) + (concerns and now != value and not open_here)
            assert len(after) == expected, (plan.row.label, plan.column, metric, after)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ({"dataset": "gsm8k-scot", "num_problems": 500, "draft_tokens": 1000, "cut": True, "aligned": None}, []),
        (
            {"dataset": "gsm8k-train", "num_problems": 500, "draft_tokens": 1000, "cut": True, "aligned": None},
            ["selector tuned on 500 problems of gsm8k-train, not on GSM8K's test 500 to 999 (code)"],
        ),
        (
            {"dataset": "gsm8k-scot", "num_problems": 500, "draft_tokens": 5000, "cut": True, "aligned": None},
            ["drafts"],
        ),
        (
            {"dataset": "gsm8k-scot", "num_problems": 500, "draft_tokens": 1000, "cut": False, "aligned": None},
            ["drafts"],
        ),
        ({"dataset": "gsm8k-scot", "num_problems": 500, "draft_tokens": 1000, "cut": True, "aligned": "a"}, ["drafts"]),
    ],
)
def test_a_selector_that_was_tuned_on_other_data_than_the_programs_says_so(
    spec: dict[str, Any], parts: list[str], tmp_path: Path
) -> None:
    params = {"draft_tokens": spec.pop("draft_tokens"), "offer_cut_drafts": spec.pop("cut")}
    made = {**spec, "params": params, "draft": {"training": spec.pop("aligned")}}
    write_manifest(tmp_path, Manifest("select", "i", "w", {}, {"run_spec": made}, {}))
    table, plan, launch = next(p for p in planned("scot-table1") if "selector" in p[1].row.trained)
    run = faithful(table, launch, selection_fingerprint="w", selection_path=str(tmp_path))
    reasons = [r for r in why_not(table, plan, launch, run, "draft_tokens") if "selector tuned" in r]
    assert len(reasons) == len(parts)
    assert all(part in reason for part, reason in zip(parts, reasons, strict=True))


def test_a_column_that_looks_exchanged_is_compared_in_none_of_its_numbers() -> None:
    for table, plan, launch in planned("speccot-table3"):
        for metric in table.metrics:
            [reason] = why_not(table, plan, launch, faithful(table, launch), metric)
            assert "looks like the other dataset's" in reason, (plan.column, metric)


def test_a_target_beyond_those_of_the_paper_is_a_reason_though_it_does_not_say_which_it_took() -> None:
    table, plan, launch = planned("speccot-table5")[0]
    metric = next(iter(table.metrics))
    for target, expected in (
        ("qwq-32b", []),
        ("r1-distill-qwen-32b", []),
        ("small", ["target small instead of qwq-32b"]),
    ):
        assert why_not(table, plan, launch, faithful(table, launch, target_name=target), metric) == expected


def test_scores_of_another_reward_model_are_a_reason_against_the_values_that_rest_on_them() -> None:
    table, plan, launch = planned("speccot-table5")[0]
    for scorers, expected in (
        (["other@r1/1"], ["reward model other@r1/1 instead of Math-Shepherd"]),
        (None, ["not scored by a reward model yet"]),
    ):
        assert why_not(table, plan, launch, faithful(table, launch, scorers=scorers), "draft_quality") == expected


def test_the_first_problems_are_not_any_problems_of_the_same_number() -> None:
    table, plan, launch = planned("scot-table2")[0]
    other = faithful(table, launch, first_problems=False)
    assert but_wording(why_not(table, plan, launch, other, "tokens")) == ["500 problems that are not the first 500"]


def test_what_holds_for_everybody_is_a_reason_against_the_metrics_that_it_names() -> None:
    table, plan, launch = planned("speccot-table6")[0]
    told = table.unlike[0].why
    found = {metric: why_not(table, plan, launch, faithful(table, launch), metric) for metric in table.metrics}
    assert found == {"wall": [told], "rate": [], "speed_up": []}


@pytest.mark.parametrize("name", [name for name in papers.names() if name.startswith("specreason")])
def test_options_that_the_authors_program_never_shuffles_make_gpqas_accuracies_not_comparable(name: str) -> None:
    for table, plan, launch in planned(name):
        if "accuracy" in table.metrics:
            told = [why for why in why_not(table, plan, launch, faithful(table, launch), "accuracy") if "(A)" in why]
            assert len(told) == (plan.column == "gpqa"), (plan.row.label, plan.column)


def test_a_row_with_models_that_the_paper_had_trained_says_which_are_not() -> None:
    table = papers.load("scot-table3")
    plan = next(plan for plan in papers.planned(table) if plan.row.trained)
    launch = papers.launch_of(plan.flags)
    assert but_wording(why_not(table, plan, launch, faithful(table, launch), "tokens")) == list(UNTRAINED)
    tuned = faithful(table, launch, selection_fingerprint="f")
    assert but_wording(why_not(table, plan, launch, tuned, "tokens")) == [UNTRAINED[0]]


def test_a_run_with_both_trained_models_is_comparable(tmp_path: Path) -> None:
    table = papers.load("scot-table3")
    plan = next(plan for plan in papers.planned(table) if plan.row.trained)
    launch = papers.launch_of(plan.flags)
    base = models.resolve(str(launch.draft.model)).path_or_hub_id
    write_manifest(tmp_path, Manifest("align", "i", "w", {"path": base}, {}, {}))
    trained = faithful(table, launch, draft_name="aligned", draft_path=str(tmp_path), selection_fingerprint="f")
    assert but_wording(why_not(table, plan, launch, trained, "tokens")) == []


def test_an_aligned_draft_of_another_base_is_not_comparable(tmp_path: Path) -> None:
    draft_name = "r1-distill-qwen-1.5b"
    reason = f"draft {tmp_path} does not say what it was aligned from"
    assert aligned_from_another(str(tmp_path), draft_name) == [reason]
    for base, expected_reasons in (
        (models.resolve(draft_name).path_or_hub_id, []),
        ("/models/Qwen-0.5B/", ["draft aligned from Qwen-0.5B instead of r1-distill-qwen-1.5b"]),
    ):
        write_manifest(tmp_path, Manifest("align", "i", "w", {"path": base}, {}, {}))
        assert aligned_from_another(str(tmp_path), draft_name) == expected_reasons


@pytest.mark.parametrize(
    ("name", "row", "pieces"),
    [
        ("scot-table1", "SCoT(32B+1.5B)", "opening.math, chain_choice"),
        ("specreason-figure3", "SpecReason", "opening.math, score"),
        ("specreason-figure3", "base model", "opening.math"),
    ],
)
def test_a_run_in_our_own_words_is_not_comparable_until_its_file_has_the_papers_hashes(
    name: str, row: str, pieces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plan, launch = next(known for known in planned(name) if known[1].row.label == row)
    metric = next(iter(table.metrics))
    ours = faithful(table, launch)
    source = prompts.published()[table.paper].source
    assert f"own wording ({pieces}; the paper's: {source})" in why_not(table, plan, launch, ours, metric)
    wording = parse("[instruction.thinking]\nmath = 'Go.'\n[score]\nquestion = 'Right?'", "own.toml")
    expected = prompts.published()[table.paper].model_copy(update={"pieces": prompts.piece_hashes(wording)})
    monkeypatch.setattr(prompts, "published", lambda: {table.paper: expected})
    theirs = faithful(table, launch, prompts=wording.stored)
    for finished, is_own in ((theirs, False), (ours, True)):
        found = why_not(table, plan, launch, finished, metric)
        assert (found != but_wording(found)) == is_own


def test_a_paper_that_published_no_prompts_leaves_them_open() -> None:
    for name in papers.names():
        table = papers.load(name)
        is_open = any("prompts" in unstated.covers for unstated in table.unstated)
        assert is_open == (table.paper not in prompts.published()), name
    wording = parse("[step_choice]\nblank = 'nothing'", "own.toml")
    assert reasons(run(prompts=wording.stored)) == []
    assert "prompts of a file" in choices(TABLE, PLAN, PAPER, run(prompts=wording.stored))
