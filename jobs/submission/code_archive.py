"""A snapshot of the code in one file of the run folder: jobs run what was submitted, whatever is edited meanwhile.

It is one archive and not a copied tree, because shared filesystems are slow with many small files, and equal code is
kept once. Each job unpacks it on its node (jobs.submission.task). The weights of the bundled models stay
where they are installed: they are larger than all the code, and a job only needs their path.
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
from harness.code_hash import read as read_code
from harness.code_hash import running_code
from harness.methods import plugins
from harness.methods.references import packed
from harness.weights import models
from jobs.run import codes
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder
from jobs.slurm.python_command import PythonCommand
from jobs.submission import own_python, task

CODE = task.CODE
ARCHIVE, HASH = "HARNESS_CODE_ARCHIVE", "HARNESS_CODE_HASH"
"""Environment variables of a job: the SHA-256 of the archive, and the hash of the code in it (harness.code_hash)."""
_CONTENT = ("harness", "jobs", "grading", "warehouse", "slurm/clusters", "pyproject.toml", codes.SUBMITTED)
"""The packages, the profiles (for a job that launches runs again), the requirements that a node's check reads, and in a
job, the methods that were submitted with it."""
_EXCLUDED = Path("harness/data/models")
"""Weights of the bundled models."""
_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the archive, so that equal code makes equal bytes."""

_VISIBLE_SECONDS = 60
"""How long a job waits for its archive."""


class WrongCode(RuntimeError):
    """A job would run code other than what was submitted."""


class CodeEdited(ValueError):
    """The code was edited while it was being submitted; nothing was submitted."""


def take(run: RunFolder) -> str:
    """Archive the packages that this process runs; returns the archive's name in the run folder. Raises CodeEdited."""
    root = Path(__file__).resolve().parents[2]
    content = _archive(root)
    if read_code(root) != running_code():
        raise CodeEdited(f"the code in {root} was edited since this command began: run it again")
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
    own = running_code().hash  # read now: later the code of this process may be edited
    if code is not None and os.environ.get(HASH, own) != own:
        raise WrongCode(f"the code in {code} is not what was submitted: files in it were changed or removed")


def unpacked_archive() -> str | None:
    """Return the SHA-256 of the archive that this process runs the code of; None outside of a job."""
    return os.environ.get(ARCHIVE) if os.environ.get(CODE) else None


def running(archive: Path, python: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Add a setup to submitit's parameters that makes the job run the code of this archive.

    It runs in the Python that the parameters name, and otherwise in this one.
    """
    own = parameters.get("python")
    if isinstance(own, PythonCommand):
        sha256 = _sha256(archive)
        return own_python.running(archive, sha256, own, parameters, [*_waiting_for(archive), *_exports(sha256)])
    return {**parameters, "setup": [*parameters.get("setup", ()), *_setup(archive, python)]}


def _setup(archive: Path, python: str) -> list[str]:
    """Return lines of a batch script that unpack the code on the node's own disk and make the rest run from it."""
    sha256 = _sha256(archive)
    program = "import sys; sys.path.insert(0, sys.argv[1]); from jobs.submission.task import unpack; "
    program += "print(unpack(*sys.argv[1:]))"
    unpack = shlex.join([python, "-c", program, str(archive), sha256])
    return [
        # `python -m` puts the working directory first, which is often the checkout, edited since.
        "export PYTHONSAFEPATH=1",
        *_waiting_for(archive),
        f"{CODE}=$({unpack}) || exit 2",
        f"""trap 'rm -rf "${CODE}"' EXIT""",
        f'export {CODE} PYTHONPATH="${CODE}${{PYTHONPATH:+:$PYTHONPATH}}"',
        *_exports(sha256),
    ]


def _waiting_for(archive: Path) -> list[str]:
    # On a shared filesystem a node may see the archive only some seconds after it was written.
    return [f"for _ in $(seq {_VISIBLE_SECONDS}); do [ -s {shlex.quote(str(archive))} ] && break; sleep 1; done"]


def _exports(sha256: str) -> list[str]:
    """Return lines of a batch script with what the unpacked code cannot find out by itself."""
    commit = environment.git_commit()
    return [
        # Under sbatch --export=NONE srun would hand none of these variables to the job's tasks.
        "export SLURM_EXPORT_ENV=ALL",
        f"export {models.PAIR_FOLDER}={shlex.quote(str(models.bundled_folder()))}",
        f"export {ARCHIVE}={sha256} {HASH}={running_code().hash}",
        *([f"export {environment.GIT_COMMIT}={shlex.quote(commit)}"] if commit else []),
    ]


def _sha256(archive: Path) -> str:
    """Return the SHA-256 of an archive; an ellipsis where there is none, as in a preview."""
    return hashlib.sha256(archive.read_bytes()).hexdigest() if archive.exists() else "…"


def _archive(root: Path) -> bytes:
    content = io.BytesIO()
    methods = {f"{codes.SUBMITTED}/{plugin.name}.zip": packed(plugin) for plugin in plugins.registered.values()}
    with zipfile.ZipFile(content, "w") as archive:
        for path in _files(root):
            if (name := path.relative_to(root).as_posix()) not in methods:
                archive.writestr(zipfile.ZipInfo(name, _FILE_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
        for name, packed_method in sorted(methods.items()):
            archive.writestr(zipfile.ZipInfo(name, _FILE_TIME), packed_method, zipfile.ZIP_DEFLATED)
    return content.getvalue()


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
