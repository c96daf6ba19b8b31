"""Check of the dataset: it can be read, and has the expected number of problems and the expected hash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.checks.finding import Check, Question, failure, ok, warning
from harness.problems import benchmarks, sources
from harness.problems.problem import dataset_hash

KNOWN_HASHES = {
    "gsm8k": "ffbf5c954908d37f",
    "gsm8k-train": "0aa7b1a709f11e33",
    "gsm8k-scot": "f2883fa5230c82ca",
    "math": "04ddf179ec7ef3de",
    "math-scot": "85d88a7db63e96dd",
    "math500": "be72afb0ea37f83c",
    "gaokao2023en": "3a99490cfb6252af",
    "college_math": "8fa9de6bd67def51",
    "olympiadbench": "106c020cd510a51e",
    "olympiadbench-scot": "59aae0963716c116",
    "amc23": "82c7dfde9aa67c83",
    "aime24": "6a04042f3aa77476",
    "demo": "94fed6ccf3080869",
    "demo-train": "e6bf2b9ca3a90417",
}
"""Hashes of whole datasets, from JSON Lines files of known upstream commits: the authors' own files for GSM8K and MATH,
those of Qwen2.5-Math's evaluation for the others. A hub copy in another row order has another hash."""


def of_question(question: Question) -> sources.Dataset:
    """Return the dataset that is asked about. Raises what `harness.problems.sources.load` raises."""
    folder = Path(question.data_dir) if question.data_dir else None
    assert question.dataset is not None
    return sources.load(question.dataset, folder, question.seed, question.split, question.columns)


def check_dataset(question: Question) -> Iterator[Check]:
    """Check that the dataset can be read, and its number of problems and hash."""
    if question.dataset is None:
        return
    try:
        loaded = of_question(question)
    except (benchmarks.DatasetNotFound, ValueError, OSError) as problem:
        yield failure("dataset", str(problem))
        return
    name = loaded.name
    actual_hash = dataset_hash(loaded.problems)
    text = f"{name}: {len(loaded.problems)} problems, hash {actual_hash}, {loaded.source}"
    expected_hash = KNOWN_HASHES.get(name)
    if loaded.origin is not None:
        yield ok("dataset", text)
        yield from (warning("dataset", notice) for notice in loaded.notices)
    elif loaded.source.startswith("hub "):
        pinned = benchmarks.DATASETS[name].revision
        yield ok("dataset", text) if pinned else warning("dataset", f"{text}: no pinned revision, so keep this hash")
    elif expected_hash is None:
        yield warning("dataset", f"{text}: no hash is known for it, so compare it with the hash of earlier runs")
    elif actual_hash != expected_hash:
        yield warning("dataset", f"{text}, not {expected_hash}: problems or answers differ; download the file again")
    else:
        yield ok("dataset", f"{text}, as expected")
