"""The code as it is now, in one file of the run folder: what runs is what was submitted, whatever is edited meanwhile.

One archive and not a copied tree: shared filesystems hate small files, and equal code is kept once. The weights of the
bundled models stay where they are installed: they are larger than all the code, and a job only needs to know where.
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

from harness import environment, models
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder

CODE = "HARNESS_CODE"
"""Environment variable: the folder that a job's code was unpacked into."""
_CONTENT = ("harness", "jobs", "grading", "warehouse", "slurm/clusters", "pyproject.toml")
"""The packages; the profiles, for a job that launches runs again; what the checks of a node compare packages with."""
_LEFT_OUT = Path("harness/data/models")
"""Weights of the bundled models."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that equal code makes equal bytes."""


class WrongCode(RuntimeError):
    """A job would run other code than was submitted."""


def take(run: RunFolder) -> str:
    """Archive the packages this process runs from; returns the archive's name in the run folder."""
    content = _archive(Path(__file__).resolve().parents[2])
    name = f"code-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    if not (run.path / name).exists():
        write_atomically(run.path / name, content)
    return name


def require() -> None:
    """In a job: raises WrongCode unless this process runs the code that was submitted."""
    code = os.environ.get(CODE)
    root = Path(__file__).resolve().parents[2]
    if code is not None and Path(code).resolve() != root:
        raise WrongCode(
            f"the code in {root} runs instead of what was submitted, which was unpacked into {code} on the node: "
            "mount that folder into the job's container, or set TMPDIR in the profile's setup to one without a colon "
            "that the job's tasks see"
        )


def running(archive: Path, python: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Submitit's parameters of a job, with a setup that makes the job run the code of this archive."""
    return {**parameters, "setup": [*parameters.get("setup", ()), *_setup(archive, python)]}


def _setup(archive: Path, python: str) -> list[str]:
    """Lines of a batch script that run the rest of it from this code, unpacked on the node's own disk."""
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
        # What the unpacked code cannot know: where the bundled models lie, and which commit it is of.
        f"export {models.PAIR_FOLDER}={shlex.quote(str(models.bundled_folder()))}",
        *([f"export {environment.GIT_COMMIT}={shlex.quote(commit)}"] if commit else []),
    ]


def _archive(root: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in _files(root):
            name = zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH)
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _files(root: Path) -> Iterator[Path]:
    """What belongs to the code: no hidden files, and nothing that a link brings in from elsewhere."""
    for name in _CONTENT:
        top = root / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inner = path.relative_to(root)
            left_out = inner.is_relative_to(_LEFT_OUT) or any(p.startswith((".", "__pycache__")) for p in inner.parts)
            if path.is_file() and path.resolve().is_relative_to(root) and not left_out:
                yield path
