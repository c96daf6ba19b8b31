"""The hash of the code changes with what decides results, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import code_hash
from harness.code_hash import changed_files, is_hashed, read
from tests.import_graph import import_graph, module_files

ROOT = Path(__file__).resolve().parents[2]
DECIDES_NOTHING = {
    "jobs.graders": "which grader grades, which every grade names",
    "jobs.run.codes": "which code may work, and runs",
    "jobs.run.sizing": "calls harness.sizing, and says where servers listen",
    "jobs.run.events": "what happened, and the digests of files",
    "jobs.run.files": "how files are written and locked, and that damage is refused",
    "jobs.run.folder": "where files lie; reads and writes plans",
    "jobs.run.submissions": "what was submitted",
    "jobs.run.timing": "which samples are run again to be timed; they are run by the code that is hashed",
    "jobs.run.trust": "whose code and options may run",
    "jobs.slurm.client": "asks Slurm",
    "jobs.submission.code_archive": "which code runs",
    "jobs.watch.exit_reasons": "why a worker ended",
    "jobs.work.attempt": "records what there is",
}
"""Modules of jobs that a worker or the grading imports, that are not part of the hash, and why.

Of `harness` and `grading` all is hashed that code_hash does not name.
"""


def test_whatever_a_worker_or_the_grader_imports_is_hashed_or_decides_nothing() -> None:
    files = module_files(ROOT, ("harness", "jobs", "grading", "warehouse"))
    graph = import_graph(files)
    reached: set[str] = set()
    ahead = ["jobs.work.worker", "jobs.finished.grading"]
    while ahead:
        module = ahead.pop()
        if module not in reached:
            reached.add(module)
            ahead += graph[module]
    names = {module: files[module].relative_to(ROOT).as_posix() for module in reached}
    left_out = {module for module, name in names.items() if module.startswith("jobs.") and not is_hashed(name)}
    assert left_out == DECIDES_NOTHING.keys()
    assert all((ROOT / name).exists() for name in (*code_hash._HASHED, *code_hash._LEFT_OUT))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", ["harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py"])
def test_an_edit_of_what_decides_results_is_another_hash(copy: Path, name: str) -> None:
    before = read(copy)
    path = copy / name
    path.write_text(path.read_text() + ("\nadded = 1\n" if name.endswith(".py") else "\n[added]\nvalue = 1\n"))
    after = read(copy)
    assert after.hash != before.hash
    assert changed_files(before.digests, after.digests) == name


def test_a_new_and_a_removed_file_are_another_hash(copy: Path) -> None:
    before = read(copy)
    (copy / "harness/methods/mine.py").touch()
    added = read(copy)
    (copy / "grading/grade.py").unlink()
    removed = read(copy)
    assert len({before.hash, added.hash, removed.hash}) == 3
    names = "grading/grade.py, harness/methods/mine.py"
    assert changed_files(before.digests, removed.digests) == names
