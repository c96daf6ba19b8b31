"""What a table of one's own says before its runs are finished: rows, what is left, GPU-hours, timing samples."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs import suite as suites
from jobs.run.spec import EngineSpec
from tests.shared import with_settings
from tests.warehouse import runs
from tests.warehouse.suites.made_suites import Made, write_suite
from warehouse.loading.runs import load_runs
from warehouse.suites.own_runs import own_runs


def test_a_dry_run_says_which_rows_are_done_partly_done_and_missing_and_writes_nothing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    made = Made(write_suite(tmp_path), tmp_path / "runs")
    first = made.reproduce("--dry-run").output
    assert not made.output.exists()
    for run in own_runs(suites.read(made.file, overrides={"output": str(made.output)}))[:3]:
        folder = runs.create(made.output, run.prepared.plan.spec, problems=run.prepared.plan.problems)
        runs.write_part(folder, [runs.vanilla(unit) for unit in runs.planned(folder)])
    before = sorted(made.output.rglob("*"))
    then = made.reproduce("--dry-run").output
    assert sorted(made.output.rglob("*")) == before
    lines = {"first": first, "then": then}
    assert {name: re.sub(r"[0-9a-f]{8,}|/\S+/", "…", text) for name, text in lines.items()} == snapshot


TIMED = """
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 4
samples = 2
latency-sample = 8

[[run]]
method = "vanilla"
model = "target"

[[run]]
method = "speccot"
"""


def test_a_latency_sample_is_planned_and_its_estimate_stands_in_the_table(tmp_path: Path) -> None:
    made = Made(tmp_path / "timed.toml", tmp_path / "runs")
    made.file.write_text(TIMED)
    planned = own_runs(suites.read(made.file, overrides={"output": str(made.output)}))
    folders = []
    for prepared in (run.prepared.plan for run in planned):
        for concurrency, latency in ((prepared.spec.concurrency, 40.0), (1, 20.0)):
            spec = replace(prepared.spec, engine=EngineSpec("vllm"), seed=9, concurrency=concurrency)
            folder = runs.create(made.output, spec, problems=prepared.problems)
            traces = [runs.vanilla(unit, latency=latency) for unit in runs.planned(folder)]
            runs.write_part(folder, traces, device="1 × H100")
            folders.append(folder)
    list(load_runs(folders, made.output / "warehouse.duckdb"))
    assert made.reproduce("--dry-run").output.count("; one at a time: ") == 2
    table = tmp_path / "table.csv"
    result = made.reproduce("-o", str(table))
    assert result.exit_code == 0, result.output
    base, own = csv.DictReader(table.read_text().splitlines())
    low, latency, high = (float(own[f"demo latency-at-one{end}"]) for end in (" low_95", "", " high_95"))
    assert low < latency < high
    ratio = float(base["demo latency-at-one"]) / latency
    assert float(own["demo speed-up-at-one"]) == pytest.approx(ratio)


def test_a_run_with_its_models_in_another_folder_or_named_by_an_earlier_version_counts(tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    file.write_text('dataset = "demo"\nlimit = 3\nsamples = 2\n[[run]]\nmethod = "vanilla"\ntarget = "demo-target,"\n')
    made = Made(file, tmp_path / "runs")
    planned = own_runs(suites.read(file, overrides={"output": str(made.output)}))[0].prepared.plan
    assert planned.spec.target is not None
    moved = replace(planned.spec, target=replace(planned.spec.target, path="/elsewhere"))
    others = (
        replace(moved, target=replace(planned.spec.target, path="/elsewhere", fingerprint="another")),
        with_settings(moved, "target", top_k=20),
        replace(moved, tag="again"),
    )
    for number, specs in enumerate(((moved,), (planned.spec,), others)):
        folders = [runs.create(tmp_path / str(number), spec, problems=planned.problems) for spec in specs]
        for folder in folders:
            runs.write_part(folder, [runs.vanilla(unit) for unit in runs.planned(folder)])
        database = tmp_path / str(number) / "warehouse.duckdb"
        list(load_runs(folders, database))
        told = made.reproduce("--table", "--format", "csv", "--database", str(database)).stdout
        [row] = csv.DictReader(told.splitlines())
        is_same = len(specs) == 1
        assert (row["demo run_id"] in [folder.path.name for folder in folders]) == is_same
        assert bool(row["demo tokens"]) == is_same
