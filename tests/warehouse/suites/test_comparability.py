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
    "the draft is not aligned: pass SCoT's aligned draft with --draft",
    "the selector is not fine-tuned: pass an adapter with --target.adapter",
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
    return [reason for reason in reasons if not reason.startswith("different wording (")]


def planned(name: str) -> list[tuple[papers.Suite, papers.Planned, Launch]]:
    table = papers.load(name)
    return [(table, plan, papers.launch_of(plan.flags)) for plan in papers.planned(table)]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target_name": "small"}, "target small"),
        ({"draft_name": None}, "r1-distill-qwen-1.5b"),
        ({"params": {**PAPER.parameters, "verdict": "separate"}}, "verdict separate"),
        ({"samples": 1}, "1 samples"),
        ({"num_finished": 7}, "7 of 6595"),
        ({"num_problems": 200, "num_finished": 3}, "3 of 1000"),
        ({"devices": "2 × NVIDIA A100"}, TIMES_ONLY + "on 2 ×"),
        ({"devices": "4 × NVIDIA A100, 4 × NVIDIA L4"}, TIMES_ONLY + "on 4 ×"),
        ({"engine_kind": "transformers"}, TIMES_ONLY + "transformers"),
        ({"engine_spec_decode": "ngram"}, TIMES_ONLY + "spec decode ngram"),
    ],
)
def test_each_stated_condition_that_differs_is_a_reason_and_the_machine_only_against_times(
    changes: dict[str, Any], named: str
) -> None:
    [reason] = reasons(run(**changes))
    assert named in reason
    assert len(reasons(run(**changes), "tokens")) == (not named.startswith(TIMES_ONLY))


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
        ("problems", "num_problems", 20),
        ("concurrency", "concurrency", 7),
        ("top-p", "top_p", 0.5),
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
    ("dataset", "draft_tokens", "is_cut", "aligned", "named"),
    [
        ("gsm8k-scot", 1000, True, None, []),
        ("gsm8k-train", 1000, True, None, ["gsm8k-train"]),
        ("gsm8k-scot", 5000, True, None, ["drafts"]),
        ("gsm8k-scot", 1000, False, None, ["drafts"]),
        ("gsm8k-scot", 1000, True, "a", ["drafts"]),
    ],
)
def test_a_selector_that_was_tuned_on_other_data_than_the_programs_says_so(
    dataset: str, draft_tokens: int, is_cut: bool, aligned: str | None, named: list[str], tmp_path: Path
) -> None:
    params = {"draft_tokens": draft_tokens, "offer_cut_drafts": is_cut}
    made = {"dataset": dataset, "num_problems": 500, "params": params, "draft": {"training": aligned}}
    write_manifest(tmp_path, Manifest("select", "i", "w", {}, {"run_spec": made}, {}))
    table, plan, launch = next(p for p in planned("scot-table1") if "selector" in p[1].row.trained)
    run = faithful(table, launch, selection_fingerprint="w", selection_path=str(tmp_path))
    found = [why for why in why_not(table, plan, launch, run, "draft_tokens") if why.startswith("selector ")]
    assert [name in why for name, why in zip(named, found, strict=True)] == [True] * len(named)


def test_missing_rewards_and_those_of_another_model_are_reasons_against_the_values_that_rest_on_them() -> None:
    table, plan, launch = planned("speccot-table5")[0]
    for changes, named in (
        ({"scorers": ["other@r1/1"]}, "other@r1/1"),
        ({"scorers": None}, "no reward-model scores"),
        ({"num_candidates": 168, "num_unscored": 45, "why_unscored": ["too long"]}, "45 of 168"),
    ):
        run = faithful(table, launch, **changes)
        of_values, of_texts = (
            [why for why in why_not(table, plan, launch, run, metric) if named in why]
            for metric in ("draft_quality", "reflection_in_drafts")
        )
        assert (len(of_values), of_texts) == (1, []), changes
    assert why_not(table, plan, launch, faithful(table, launch, num_unscored=0), "draft_quality") == []


def test_the_first_problems_are_not_any_problems_of_the_same_number() -> None:
    table, plan, launch = planned("scot-table2")[0]
    other = faithful(table, launch, first_problems=False)
    [reason] = but_wording(why_not(table, plan, launch, other, "tokens"))
    assert "first 500" in reason


def test_options_that_the_authors_program_never_shuffles_make_gpqas_accuracies_not_comparable() -> None:
    for table, plan, launch in planned("specreason-figure3"):
        told = [why for why in why_not(table, plan, launch, faithful(table, launch), "accuracy") if "(A)" in why]
        assert len(told) == (plan.column == "gpqa"), (plan.row.label, plan.column)


def test_a_row_with_models_that_the_paper_had_trained_says_which_are_not(tmp_path: Path) -> None:
    table = papers.load("scot-table3")
    plan = next(plan for plan in papers.planned(table) if plan.row.trained)
    launch = papers.launch_of(plan.flags)
    base = models.resolve(str(launch.draft.model)).path_or_hub_id
    write_manifest(tmp_path, Manifest("align", "i", "w", {"path": base}, {}, {}))
    tuned = {"selection_fingerprint": "f"}
    aligned = {"draft_name": "aligned", "draft_path": str(tmp_path)}
    for made, expected in (({}, [*UNTRAINED]), (tuned, [UNTRAINED[0]]), (tuned | aligned, [])):
        assert but_wording(why_not(table, plan, launch, faithful(table, launch, **made), "tokens")) == expected


def test_an_aligned_draft_of_another_base_is_not_comparable(tmp_path: Path) -> None:
    draft_name = "r1-distill-qwen-1.5b"
    assert str(tmp_path) in aligned_from_another(str(tmp_path), draft_name)[0]
    for base, number in ((models.resolve(draft_name).path_or_hub_id, 0), ("/models/Qwen-0.5B/", 1)):
        write_manifest(tmp_path, Manifest("align", "i", "w", {"path": base}, {}, {}))
        assert len(aligned_from_another(str(tmp_path), draft_name)) == number


@pytest.mark.parametrize(
    ("name", "row", "pieces"),
    [
        ("scot-table1", "SCoT(32B+1.5B)", "opening.math, chain_choice"),
        ("specreason-figure3", "SpecReason", "opening.math, score"),
    ],
)
def test_a_run_in_our_own_words_is_not_comparable_until_its_file_has_the_papers_hashes(
    name: str, row: str, pieces: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plan, launch = next(known for known in planned(name) if known[1].row.label == row)
    metric = next(iter(table.metrics))
    ours = faithful(table, launch)
    source = prompts.published()[table.paper].source
    assert f"different wording ({pieces}; the paper's: {source})" in why_not(table, plan, launch, ours, metric)
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
    assert choices(TABLE, PLAN, PAPER, run(prompts=wording.stored)) != choices(TABLE, PLAN, PAPER, run())
