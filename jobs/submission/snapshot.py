"""A snapshot of the code in one file of the run folder: jobs run what was submitted, whatever is edited meanwhile.

It is one archive and not a copied tree, because shared filesystems are slow with many small files, and equal code is
kept once. The weights of the bundled models stay where they are installed: they are larger than all the code, and a job
only needs their path.
"""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import environment
from harness.weights import models
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder

CODE = "HARNESS_CODE"
"""Environment variable: the folder that a job's code was unpacked into."""
_CONTENT = ("harness", "jobs", "grading", "warehouse", "slurm/clusters", "pyproject.toml")
"""The packages, the profiles (for a job that launches runs again), and the requirements that a node's check reads."""
_EXCLUDED = Path("harness/data/models")
"""Weights of the bundled models."""
_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the archive, so that equal code makes equal bytes."""


class WrongCode(RuntimeError):
    """A job would run code other than what was submitted."""


def take(run: RunFolder) -> str:
    """Archive the packages that this process runs; returns the archive's name in the run folder."""
    content = _archive(Path(__file__).resolve().parents[2])
    name = f"code-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    if not (run.path / name).exists():
        write_atomically(run.path / name, content)
    return name


def require() -> None:
    """Raise WrongCode in a job whose process does not run the code that was submitted."""
    code = os.environ.get(CODE)
    root = Path(__file__).resolve().parents[2]
    if code is not None and Path(code).resolve() != root:
        raise WrongCode(
            f"this job runs the code in {root} instead of the submitted code, "
            f"which was unpacked into {code} on the node: mount that folder into the job's container, "
            "or set TMPDIR in the profile's setup to a folder without a colon that the job's tasks see"
        )


def running(archive: Path, python: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Add a setup to submitit's parameters that makes the job run the code of this archive."""
    return {**parameters, "setup": [*parameters.get("setup", ()), *_setup(archive, python)]}


def _setup(archive: Path, python: str) -> list[str]:
    """Return lines of a batch script that unpack the code on the node's own disk and make the rest run from it."""
    commit = environment.git_commit()
    failed = "echo 'error: the code cannot be unpacked: set TMPDIR in the profile to a folder with room' >&2; exit 1"
    return [
        # `python -m` puts the working directory first, which is often the checkout, edited since.
        "export PYTHONSAFEPATH=1",
        f'{CODE}=$(mktemp -d "${{TMPDIR:-/tmp}}/harness-code-XXXXXX") || {{ {failed}; }}',
        f"trap 'rm -rf \"${CODE}\"' EXIT",
        f'{shlex.quote(python)} -m zipfile -e {shlex.quote(str(archive))} "${CODE}" || {{ {failed}; }}',
        f'export {CODE} PYTHONPATH="${CODE}${{PYTHONPATH:+:$PYTHONPATH}}"',
        # Under sbatch --export=NONE srun would hand none of these variables to the job's tasks.
        "export SLURM_EXPORT_ENV=ALL",
        # What the unpacked code cannot find out: the folder of the bundled models, and its own commit.
        f"export {models.PAIR_FOLDER}={shlex.quote(str(models.bundled_folder()))}",
        *([f"export {environment.GIT_COMMIT}={shlex.quote(commit)}"] if commit else []),
    ]


def _archive(root: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in _files(root):
            name = zipfile.ZipInfo(str(path.relative_to(root)), _FILE_TIME)
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _files(root: Path) -> Iterator[Path]:
    """Yield the files that belong to the code: no hidden files, and nothing that a link brings in from elsewhere."""
    for name in _CONTENT:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inner = path.relative_to(root)
            is_excluded = inner.is_relative_to(_EXCLUDED) or any(
                p.startswith((".", "__pycache__")) for p in inner.parts
            )
            if path.is_file() and path.resolve().is_relative_to(root) and not is_excluded:
                yield path
