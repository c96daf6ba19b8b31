"""The command: its plan writes nothing, its table stands beside the published values, its mistakes are one line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness import reproduce
from harness.methods import defaults
from jobs.run.spec import EngineSpec, ModelSpec
from tests.warehouse import runs
from warehouse.loading.runs import load_run
from warehouse.suites import published as papers
from warehouse.suites.published import suite_run


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "2000"}).invoke(reproduce.main, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scale", "30x2"), "SUITE is missing"),
        (("speccot-table9",), "unknown suite 'speccot-table9'; valid: scot-ablations"),
        (("speccot-table2", "--scale", "30"), "expected PROBLEMSxSAMPLES, e.g. 30x2"),
        (("speccot-table2", "--column", "aime24"), "not in speccot-table2; valid: gsm8k, math500"),
        (("speccot-table2", "--dry-run", "--every-sample-alone", "--latency-sample", "50"), "--latency-sample"),
        (("speccot-table2", "--costs"), "--costs"),
        (("speccot-table2", "--dry-run", "--table"), "prints the plan, --table the table"),
        (("speccot-table2", "--drafts", "0", "--dry-run"), "--drafts must be from 1 to 25"),
        (("speccot-table2", "--table", "--database", "nowhere.duckdb"), "no database at nowhere.duckdb"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_dry_run_plans_every_run_and_writes_nothing(tmp_path: Path) -> None:
    flags = ("speccot-table2", "--dry-run", "--every-sample-alone", "--output", str(tmp_path / "runs"))
    result = invoke(*flags)
    assert result.exit_code == 0, result.output
    assert result.output.count("GPU-hours (published: ") == 20
    assert "1,310.0" in result.output
    together = invoke(*flags, "--column", "gsm8k", "--target", "qwq-32b")
    assert together.output.count("GPU-hours (published: ") == 3, "two of five rows are runs of another row"
    assert list(tmp_path.iterdir()) == []


def data_dir(folder: Path, name: str, count: int) -> str:
    lines = [f'{{"problem": "What is {i} + 1?", "answer": "{i + 1}"}}\n' for i in range(count)]
    (folder / f"{name}.jsonl").write_text("".join(lines))
    return str(folder)


def test_a_dry_run_refuses_what_is_above_the_budget(tmp_path: Path) -> None:
    data = data_dir(tmp_path, "gsm8k", 1319)
    flags = ("--scale", "1x1", "--column", "gsm8k", "--data-dir", data, "--output", str(tmp_path / "runs"))
    within, above = (invoke("speccot-table2", "--dry-run", *flags, "--max-gpu-hours", hours) for hours in ("9", "1e-6"))
    assert (within.exit_code, above.exit_code) == (0, 2), (within.output, above.output)
    assert "--max-gpu-hours 1e-06" in above.stderr
    assert not (tmp_path / "runs").exists()


def test_the_costs_of_every_suite_are_listed(tmp_path: Path) -> None:
    result = invoke("--costs", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    found = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()}
    assert set(papers.names()) <= set(found)
    assert found["speccot-table2"] == ["20", "unknown", "1,310.0"], "as its dry run has it"
    assert list(tmp_path.iterdir()) == []


def test_what_the_harness_lacks_is_reported_and_not_planned(tmp_path: Path) -> None:
    result = invoke("scot-table2", "--dry-run", "--output", str(tmp_path))
    assert result.output.count("requires") == 5
    aligned = invoke("scot-table2", "--dry-run", "--output", str(tmp_path), "--aligned", "org/aligned")
    assert "requires" not in aligned.output


def test_the_selection_adapter_and_the_aligned_draft_go_to_their_rows_and_to_no_other() -> None:
    selection_suite, table2 = papers.load("scot-selection"), papers.load("scot-table2")
    plain, tuned = (next(p for p in papers.planned(selection_suite) if p.row == row) for row in selection_suite.rows)
    assert "--target.adapter" in str(suite_run(tuned, {}, None).awaits)
    vanilla = next(papers.planned(table2))
    launches = [suite_run(one, {"target_adapter": "selector"}, None).launch for one in (plain, tuned, vanilla)]
    assert [launch and launch.target.adapter for launch in launches] == [None, "selector", None]
    assert [row.model_of for row in table2.rows] == [None, "aligned"]
    rows = [plan for plan in papers.planned(table2) if plan.column == "gsm8k"]
    launches = [suite_run(plan, {"draft": "org/plain"}, "org/aligned").launch for plan in rows]
    assert [launch and launch.draft.model for launch in launches] == ["org/plain", "org/aligned"]


def test_ours_stands_beside_the_published_value_with_the_reasons(tmp_path: Path) -> None:
    """A run of three problems with other models: shown, and not comparable: …"""
    params = {**defaults("speccot"), "drafts": 2}
    small, large = (
        ModelSpec(model=name, path=name, revision=None, fingerprint=f"{name}@r") for name in ("org/small", "org/large")
    )
    spec = replace(runs.SPEC, dataset="gsm8k", dataset_size=1319, params=params, token_budget=8192, seed=0)
    run = runs.create(tmp_path, replace(spec, engine=EngineSpec("vllm"), draft=small, target=large))
    traces = [runs.speculative(unit, latency=10.0) for unit in runs.planned(run)]
    runs.write_part(run, traces)
    load_run(run, tmp_path / "warehouse.duckdb")
    pair = ("--draft", "org/small", "--target", "org/large", "--drafts", "2", "--column", "gsm8k")
    command = ("speccot-table2", "--table", "--database", str(tmp_path / "warehouse.duckdb"), *pair)
    result = invoke(*command, "--scale", "3x2")
    assert result.exit_code == 0, result.output
    assert re.search(r"^SpecCoT, QwQ-32B +14\.0 ", result.output, re.MULTILINE)
    assert "1,023.3" in result.output
    assert all(name in result.output for name in ("org/small", "r1-distill-qwen-1.5b", "top-p", "3 of 1319"))
    assert " 14.0 " not in invoke(*command, "--scale", "4x2").output


def test_a_suite_is_run_graded_and_shown_in_one_command(tmp_path: Path) -> None:
    """Scripted engines: the runs are made, and the table leaves their numbers out, for they mean nothing."""
    result = invoke(
        "speccot-figure3", "--column", "amc23", "--scale", "2x1", "--engine", "scripted", "--cluster", "debug",
        "--data-dir", data_dir(tmp_path, "amc23", 40), "--output", str(tmp_path / "runs"), "--token-budget", "400",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "runs").glob("amc23-*"))) == 3  # scripted pairs are all alike
    assert "PARTIAL RUN" in result.output
