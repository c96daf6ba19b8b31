"""Run ids and sample ids of everything that the harness plans by itself: the demo, and every row of every suite.

The benchmarks are stood in for by files of as many problems; the ids of a real run differ from these by the problems'
contents alone.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.launch_options import Launch
from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.prompts import prompt_hash
from jobs import suite
from jobs.run.model_spec import AdapterSpec, ModelSpec
from jobs.run.plan import plan
from jobs.run.spec import RunSpec, units
from tests.golden import digests
from warehouse.papers import suite as papers
from warehouse.papers.suite_runs import suite_run

_LISTED = 100
"""Samples up to which every id is listed; of larger runs the first three, and a digest of all."""
_DEMO = benchmarks.BUNDLED / "demo.toml"
_FORMER_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "scot-*": {"token-budget": 32768, "offer-cut-drafts": None, "draft-gpus": None, "target-gpus": None},
    "scot-*/math500": {"dataset": "math500"},
    "scot-*/olympiadbench": {"dataset": "olympiadbench"},
    "specreason-figure5/SpecReason/*": {"threshold": 7.0},
    "specreason-figure3/SpecReason*": {"ends-at": "answer"},
    "specreason-figure[56]/SpecReason/*": {"ends-at": "answer"},
    "specreason-figure4/*": {"ends-at": "answer"},
    "specreason-first-n/*": {"ends-at": "answer"},
    "speccot-decoding/*/math500": {"target": "r1-distill-qwen-32b"},
}
"""Rows that have been corrected since, by the pattern of their name: their former flags must have their former ids."""
_FORMER_DEMO_PARAMS: Mapping[str, Mapping[str, Any]] = {"specreason": {"threshold": 7.0}}
"""What the demo has asked for otherwise since, by method; it also has prompts of its own since."""
_ALIGNED = "org/aligned"
_FORMER_WEIGHTS = {"demo-draft": "beb06bbec9717c2c", "demo-target": "ac0a87af0ec5cdc2"}
"""Fingerprints of the bundled pair when the ids were stored."""
_ADAPTER = AdapterSpec("adapter", "/models/adapter", "0123456789abcdef", 16)
"""Stand in for what a reader has to train."""


def write_stand_ins(folder: Path) -> None:
    """As many problems of every benchmark as it has, each with a text of its own."""
    for benchmark in benchmarks.DATASETS.values():
        if (benchmarks.BUNDLED / f"{benchmark.name}.jsonl").is_file():
            continue
        records = (_record(benchmark, index) for index in range(benchmark.count))
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (folder / f"{benchmark.name}.jsonl").write_text(lines, encoding="utf-8")


def _record(benchmark: benchmarks.Benchmark, index: int) -> dict[str, object]:
    asked = {"problem": f"{benchmark.name} {index}: what is {index} + {benchmark.count}?"}
    if benchmark.kind == "choice":
        return {**asked, "answer": "A", "choices": [str(index + benchmark.count + i) for i in range(4)]}
    return {**asked, "answer": str(index + benchmark.count)}


def every(stand_ins: Path) -> dict[str, dict[str, Any]]:
    """Run id and sample ids of each planned run, by its name."""
    found: dict[str, dict[str, Any]] = {}
    known: dict[str, dict[str, Any]] = {}
    for name, spec, problems in (*_demo(), *_suites(stand_ins)):
        planned = spec.to_json()  # a baseline stands in several tables
        if planned not in known:
            known[planned] = _ids(spec, problems)
        found[name] = known[planned]
    return found


def _ids(spec: RunSpec, problems: list[Problem]) -> dict[str, Any]:
    ids = [unit.sample_id for unit in units(spec, problems)]
    return {
        "run_id": spec.run_id,
        "num_samples": len(ids),
        "sample_ids": ids if len(ids) <= _LISTED else ids[:3],
        "sha256": digests.of_lines(ids),
    }


def _demo() -> Iterator[tuple[str, RunSpec, list[Problem]]]:
    for number, launch in enumerate(suite.read(_DEMO).launches):
        spec, problems = _planned(launch)
        params = {**spec.params, **_FORMER_DEMO_PARAMS.get(spec.method, {})}
        former = replace(spec, params=params, prompts=None, prompt_hash=prompt_hash())
        former = replace(former, draft=_placed(spec.draft), target=_placed(spec.target))
        yield f"demo/{number}", former, problems


def _placed(model: ModelSpec | None) -> ModelSpec | None:
    """A bundled model as it was when the ids were stored: its path is the checkout's, and it was trained anew since."""
    return model and replace(model, path=f"/models/{model.name}", fingerprint=_FORMER_WEIGHTS[model.name])


def _suites(stand_ins: Path) -> Iterator[tuple[str, RunSpec, list[Problem]]]:
    """Rows that the harness lacks something for are left out; they have no ids."""
    loaded = functools.cache(benchmarks.load)  # a hundred rows have the same problems
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmarks, "load", loaded)
        for name in papers.names():
            for row in papers.planned(papers.load(name)):
                full_name = f"{name}/{row.row.label}/{_former_column(name, row.column)}"
                former = {
                    flag: value
                    for pattern, flags in _FORMER_FLAGS.items()
                    if fnmatch.fnmatchcase(full_name, pattern)
                    for flag, value in flags.items()
                }
                former_row = replace(row, flags={**row.flags, **former})
                launch = suite_run(former_row, {"selection_adapter": "adapter"}, _ALIGNED).launch
                if launch is not None:
                    adapter = _ADAPTER if launch.selection_adapter else None
                    spec, problems = _planned(launch.changed(data_dir=stand_ins, selection_adapter=None))
                    yield full_name, replace(spec, selection=adapter), problems


def _former_column(suite_name: str, column: str) -> str:
    """SCoT's MATH was taken for MATH-500."""
    return "math500" if suite_name.startswith("scot-") and column == "math" else column


def _planned(launch: Launch) -> tuple[RunSpec, list[Problem]]:
    """Plan as `harness.launch` does on a cluster with vLLM, whatever this machine has."""
    planned = plan(launch.changed(engine="vllm"), "slurm")
    return planned.spec, planned.problems
