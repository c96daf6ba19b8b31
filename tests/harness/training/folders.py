"""Run folders as the harness leaves them, written by hand: a target's chains, and SCoT's drafts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness.methods import defaults
from harness.problems.problem import Problem, dataset_hash
from harness.prompts import prompt_hash
from harness.trace import Candidate, Step, Trace
from harness.weights.tokenizer import HFTokenizer
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.plan import model_spec
from jobs.run.spec import Attempt, EngineSpec, RunSpec, assign_to_shards, units

RIGHT, WRONG = "So it is \\boxed{{{}}}.", "No, it is \\boxed{{{}}}."


def problems(number: int, dataset: str = "gsm8k-train") -> list[Problem]:
    return [Problem(f"{dataset}/{i}", dataset, f"What is 7 + {i}?", str(7 + i)) for i in range(number)]


def chain(i: int) -> str:
    """The target's reply to problem i."""
    return f"First we add 7 and {i}, then we check. " + RIGHT.format(7 + i)


def vanilla(folder: Path, target: Path, number: int = 6, dataset: str = "gsm8k-train") -> RunFolder:
    """A finished run of the target alone; the last chain is cut off."""
    run = _planned(folder, "vanilla", None, target, problems(number, dataset))
    tokenizer, traces = HFTokenizer(str(target)), []
    for i, unit in enumerate(units(run.spec(), run.problems())):
        ids = tuple(tokenizer.encode(chain(i)))
        step = Step("target", "chain", chain(i), len(ids) + 1, ids, "length" if i == number - 1 else "eos")
        traces.append(_ended(unit.sample_id, unit.problem_id, [step]))
    return _written(run, traces)


def scot(
    folder: Path, draft: Path, target: Path, right: Sequence[tuple[bool, ...]], dataset: str = "gsm8k-train"
) -> RunFolder:
    """A finished run of SCoT: by problem, which of its drafts are right. Texts of equal worth differ."""
    run = _planned(folder, "scot", draft, target, problems(len(right), dataset))
    traces = []
    for i, unit in enumerate(units(run.spec(), run.problems())):
        candidates = [
            Candidate(
                f"Way {number}. " + (RIGHT if good else WRONG).format(7 + i if good else 90 + i), 9, "eos", None, number
            )
            for number, good in enumerate(right[i])
        ]
        cut_off = Candidate("Way to no end", 9, "length", None, None)
        step = Step("target", "rethink", chain(i), 9, (5, 6), "eos", [cut_off, *candidates])
        traces.append(_ended(unit.sample_id, unit.problem_id, [step]))
    return _written(run, traces)


def data_dir(folder: Path, **first: str) -> Path:
    """Files of GSM8K's two halves, whole by their numbers; `first` is the first problem's text, by dataset."""
    folder.mkdir(exist_ok=True)
    for name, count in (("gsm8k-train", 7473), ("gsm8k", 1319)):
        texts = [f"{name}, what is {i} + 1?" for i in range(count)]
        texts[0] = first.get(name.replace("-", "_"), texts[0])
        lines = (json.dumps({"problem": text, "answer": str(i)}) for i, text in enumerate(texts))
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _planned(folder: Path, method: str, draft: Path | None, target: Path, chosen: list[Problem]) -> RunFolder:
    spec = RunSpec(
        method=method,
        params=defaults(method),
        dataset=chosen[0].dataset,
        dataset_hash=dataset_hash(chosen),
        dataset_size=7473,
        num_problems=len(chosen),
        samples=1,
        seed=0,
        temperature=0.0,
        top_p=0.95,
        token_budget=256,
        draft=model_spec(str(draft)) if draft else None,
        target=model_spec(str(target)),
        engine=EngineSpec("transformers"),
        concurrency=1,
        prompt_hash=prompt_hash(),
    )
    run = RunFolder(folder / spec.run_id)
    run.create(spec, chosen, assign_to_shards(units(spec, chosen), 1))
    return run


def _ended(sample_id: str, problem_id: str, steps: list[Step]) -> Trace:
    return Trace(sample_id, problem_id, 0, seed=1, steps=steps, stop_reason="answered")


def _written(run: RunFolder, traces: list[Trace]) -> RunFolder:
    attempt = Attempt("a0", run.path.name, 0, "node1", 1, 0.0, None)
    metadata = {"attempt": json.dumps(asdict(attempt))}
    trace_files.write_table(
        run.trace_files_dir / "a0.parquet", trace_files.TRACES, [asdict(trace) for trace in traces], metadata
    )
    return run
