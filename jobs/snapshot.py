"""The code as it is now, in one file of the run folder: what runs is what was submitted, whatever is edited meanwhile.

One archive and not a copied tree: shared filesystems hate small files, and equal code is kept once.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from jobs.store import RunFolder, write_atomically

_PACKAGES = ("harness", "jobs", "grading", "warehouse")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that equal code makes equal bytes."""


def take(run: RunFolder) -> str:
    """Archive the packages this process runs from; returns the archive's name in the run folder."""
    content = _archive(Path(__file__).resolve().parents[1])
    name = f"code-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    if not (run.path / name).exists():
        write_atomically(run.path / name, content)
    return name


def unpacking(archive: Path, python: str) -> list[str]:
    """Lines of a batch script that run the rest of it from this code, unpacked on the node's own disk."""
    return [
        'code=$(mktemp -d "${TMPDIR:-/tmp}/harness-code-XXXXXX") || exit 1',
        "trap 'rm -rf \"$code\"' EXIT",
        f'"{python}" -m zipfile -e "{archive}" "$code" || exit 1',
        'export PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}"',
    ]


def _archive(root: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in sorted((root / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.writestr(zipfile.ZipInfo(str(path.relative_to(root)), _EPOCH), path.read_bytes())
    return packed.getvalue()
