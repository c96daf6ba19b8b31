"""The hash of the code changes with what decides results, and with nothing else."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

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
    ahead = {"jobs.work.worker", "jobs.finished.grading"}
    while ahead:
        reached |= ahead
        ahead = {target for module in ahead for target in graph[module]} - reached
    names = {module: files[module].relative_to(ROOT).as_posix() for module in reached}
    left_out = {module for module, name in names.items() if module.startswith("jobs.") and not is_hashed(name)}
    assert left_out == DECIDES_NOTHING.keys()
    assert all((ROOT / name).exists() for name in (*code_hash._HASHED, *code_hash._LEFT_OUT))


def test_an_edited_a_new_and_a_removed_file_are_another_hash(tmp_path: Path) -> None:
    speccot, prompts, grade = "harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py"
    for name in (speccot, prompts, grade):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    versions = [read(tmp_path)]
    for name, added in ((speccot, "\nadded = 1\n"), (prompts, "\n[added]\nvalue = 1\n")):
        (tmp_path / name).write_text((tmp_path / name).read_text() + added)
        versions.append(read(tmp_path))
    (tmp_path / "harness/methods/mine.py").touch()
    versions.append(read(tmp_path))
    (tmp_path / grade).unlink()
    versions.append(read(tmp_path))
    assert len({version.hash for version in versions}) == 5
    changed = [changed_files(before.digests, after.digests) for before, after in pairwise(versions)]
    assert changed == [speccot, prompts, "harness/methods/mine.py", grade]
