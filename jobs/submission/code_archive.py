"""The submitted code: one zip in the run folder, from which jobs import, unaffected by later edits.

It contains the code this process runs (a checkout, an installation or such a zip); equal code gives equal bytes.
Weights of the bundled models are not included: engines need real files, the weights are larger than all the code, and a
job only needs their path.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

from harness.code_hash import ROOT, running_code
from harness.code_hash import read as read_code
from harness.methods import plugins
from harness.methods.references import packed
from jobs.run import codes
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder

CODE, SHA256 = "HARNESS_CODE", "HARNESS_CODE_ARCHIVE"
"""Environment variables of a job: the node's copy of the archive, and the digest of the submitted archive."""
_CONTENT = ("harness", "jobs", "grading", "warehouse", "pyproject.toml", codes.SUBMITTED)
"""The packages, the requirements for node checks, and, in a job, the methods submitted with it."""
_EXCLUDED = "harness/data/models"
"""Weights of the bundled models."""
_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Fixed modification time of archived files, so equal code gives equal bytes."""


_DIGESTS: dict[str, str] = {}
"""Digests of the archives created by this process, by name: jobs verify these, not digests of later content."""


def take(run: RunFolder) -> str:
    """Archive the packages that this process runs; return the archive's name in the run folder.

    An existing archive is kept if its content is equal, and otherwise replaced. Raises ValueError if the code has been
    edited since this process started.
    """
    content = _archive(ROOT)
    if read_code(zipfile.Path(io.BytesIO(content))) != running_code():
        raise ValueError(f"the code in {ROOT} has been edited since this command started: run it again")
    digest = hashlib.sha256(content).hexdigest()
    path = run.path / f"code-{digest[:12]}.zip"
    if not path.exists() or sha256(path) != digest:
        write_atomically(path, content)
    _DIGESTS[path.name] = digest
    return path.name


def digest_of(archive: Path) -> str:
    """Return the SHA-256 of an archive created by this process; an ellipsis for a preview."""
    return _DIGESTS.get(archive.name, "…")


def sha256(archive: Path) -> str:
    """Return the digest of an archive."""
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def require() -> None:
    """Raise RuntimeError in a job that does not import from the submitted archive, or if the archive was changed.

    If an archive is missing or its path has a colon, Python silently uses an installed copy.
    """
    code = os.environ.get(CODE)
    if code is None:
        return
    root = Path(str(ROOT)).resolve()
    if root != Path(code).resolve():
        raise RuntimeError(
            f"this job runs the code in {root} instead of the submitted archive {code}: in the profile's setup, set "
            "TMPDIR to a folder that the job's tasks and container can see and that has no colon in its path, and pass "
            "PYTHONPATH on to them"
        )
    if sha256(Path(code)) != os.environ.get(SHA256):
        raise RuntimeError(f"{code} was changed after submission")


def digest_here() -> str | None:
    """Return the digest of the archive this process imports from; None outside of a job."""
    return os.environ.get(SHA256) if os.environ.get(CODE) else None


def _archive(root: Traversable) -> bytes:
    files = dict(_files(root))
    for plugin in plugins.registered.values():
        files[f"{codes.SUBMITTED}/{plugin.name}.zip"] = packed(plugin)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _FILE_TIME), text, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _files(root: Traversable) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the code files, without hidden files and links out of the tree."""
    ahead = [(name, root / name) for name in _CONTENT]
    while ahead:
        name, entry = ahead.pop()
        leads_out = isinstance(root, Path) and not Path(str(entry)).resolve().is_relative_to(root)
        if leads_out or name == _EXCLUDED or entry.name.startswith((".", "__pycache__")):
            continue
        if entry.is_dir():
            ahead += [(f"{name}/{inner.name}", inner) for inner in entry.iterdir()]
        elif entry.is_file():
            yield name, entry.read_bytes()
