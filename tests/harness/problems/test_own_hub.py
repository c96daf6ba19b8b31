"""Datasets of a hub on this machine: which commit is read, online and from the cache, and what is said otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness.problems.local_hub import LocalHub, local_hub

OLD, NEW = "a" * 40, "b" * 40
ROWS = [{"question": f"What is {i} + 1?", "final": i + 1} for i in range(3)]
PROGRAM = """
import json, sys
from harness.problems import sources
for dataset, split in json.loads(sys.argv[1]):
    try:
        read = sources.load(dataset, split=split, columns=("problem=question", "answer=final"))
        answers = [problem.answer for problem in read.problems]
        print(json.dumps({"source": read.source, "answers": answers, "name": read.name, "notices": read.notices}))
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "line": str(error)}))
"""


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as served:
        served.add("org/sums", OLD, {"test.jsonl": lines(ROWS), "README.md": b"# Sums\n"})
        yield served


def loaded(
    address: str, home: Path, *wanted: tuple[str, str | None], variables: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Load datasets in a process of its own, because the hub's libraries read its address when they are imported."""
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    own |= {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **(variables or {})}
    words = [sys.executable, "-c", PROGRAM, json.dumps(wanted)]
    ended = subprocess.run(words, env=own, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_revision_is_the_commit_that_it_names_also_from_the_cache(hub: LocalHub, tmp_path: Path) -> None:
    [first] = loaded(hub.address, tmp_path, ("hf:org/sums", None))
    assert first == {"source": f"hub org/sums@{OLD}, test", "answers": ["1", "2", "3"], "name": "sums", "notices": []}

    [offline] = loaded("http://127.0.0.1:9", tmp_path, ("hf:org/sums", None))
    assert (offline["source"], offline["answers"]) == (first["source"], first["answers"])
    assert offline["notices"] == [f"THE HUB CANNOT BE REACHED: org/sums is the newest commit in its cache, {OLD}."]

    hub.add("org/sums", NEW, {"test.jsonl": lines(ROWS[:2])})
    moved, pinned, tagged, split, config, missing = loaded(
        hub.address,
        tmp_path,
        ("hf:org/sums", None),
        (f"hf:org/sums@{OLD}", None),
        ("hf:org/sums@v9", None),
        ("hf:org/sums", "train"),
        ("hf:org/sums:hard", None),
        ("hf:org/none", None),
    )
    assert (moved["source"], len(moved["answers"])) == (f"hub org/sums@{NEW}, test", 2)
    assert (pinned["source"], len(pinned["answers"])) == (f"hub org/sums@{OLD}, test", 3)
    for refused, words in (
        (tagged, "hub org/sums@v9: RevisionNotFoundError"),
        (split, 'Unknown split "train". Should be one of'),
        (config, "BuilderConfig 'hard' not found"),
        (missing, "hub org/none@main: RepositoryNotFoundError"),
    ):
        assert refused["error"] == "DatasetNotFound"
        assert words in refused["line"]
        assert "\n" not in refused["line"]

    named, newest, other = loaded(
        "http://127.0.0.1:9",
        tmp_path,
        ("hf:org/sums@v9", None),
        ("hf:org/sums", None),
        (f"hf:org/sums@{'c' * 40}", None),
    )
    assert "its cache does not know which commit that is" in named["line"]
    assert newest["source"] in (f"hub org/sums@{OLD}, test", f"hub org/sums@{NEW}, test")
    assert len(newest["answers"]) == (3 if OLD in newest["source"] else 2)
    assert f"not {'c' * 40}" in other["line"]


def test_rows_of_the_hub_are_checked_as_those_of_a_file_are(hub: LocalHub, tmp_path: Path) -> None:
    hub.add("org/twice", OLD, {"test.jsonl": lines([*ROWS, ROWS[0]])})
    hub.add("org/other", OLD, {"test.jsonl": lines([{"problem": "1 + 1?", "answer": 2}])})
    twice, other = loaded(hub.address, tmp_path, ("hf:org/twice", None), ("hf:org/other", None))
    assert twice == {"error": "BadDataset", "line": "org/twice on the hub, row 3: the same problem as row 0"}
    assert other["line"].startswith("org/other on the hub, row 0: no field 'question'; it has problem, answer")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_a_dataset_that_is_not_in_the_cache_names_the_variable_that_keeps_it_away(
    hub: LocalHub, tmp_path: Path, variable: str
) -> None:
    [answer] = loaded(hub.address, tmp_path, ("hf:org/sums", None), variables={variable: "1"})
    assert answer["error"] == "DatasetNotFound"
    remedy = f"; {variable} is set: run once without it where the hub answers, or give a file"
    assert answer["line"].endswith(remedy)
