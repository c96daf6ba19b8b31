"""Where a corpus lies, what belongs to it, and how its files are told from edited ones."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

from jobs.run.folder import RunFolder, run_folders

MANIFEST = "MANIFEST"
"""`<sha256>  <path>` of every other file of a corpus, sorted by path."""
_LEFT_OUT = ("logs", "locks")
"""Folders of a run that nothing is read from again; they hold paths of the machine."""


def keep(run: RunFolder, folder: Path) -> RunFolder:
    """Copy what belongs to a run into a folder of runs."""
    copied = shutil.copytree(run.path, folder / run.path.name, ignore=shutil.ignore_patterns(*_LEFT_OUT, ".*"))
    return RunFolder(copied)


def copied(folder: Path, to: Path) -> list[RunFolder]:
    """The runs of a folder of the corpus, as copies that may be changed; folders that no file kept are made again."""
    return [restored(run, to) for run in run_folders([folder])]


def restored(run: RunFolder, to: Path) -> RunFolder:
    """One run as a copy that may be changed. A checkout has no empty folders, and a run folder has some."""
    found = RunFolder(Path(shutil.copytree(run.path, to / run.path.name)))
    for empty in (found.journal_dir, found.trace_files_dir, found.grades_dir, found.logs_dir, found.locks_dir):
        empty.mkdir(exist_ok=True)
    return found


def pack(database: Path, to: Path) -> None:
    """A database in gzip's format; the same bytes for the same database."""
    with to.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        packed.write(database.read_bytes())


def unpack(packed: Path, to: Path) -> Path:
    """The inverse of `pack`."""
    to.write_bytes(gzip.decompress(packed.read_bytes()))
    return to


def write_json(path: Path, content: object) -> None:
    """As indented JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The inverse of `write_json`."""
    return json.loads(path.read_text(encoding="utf-8"))


def manifest(folder: Path) -> str:
    """What the manifest of a corpus must say."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return "".join(f"{_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def launch_flags(path: Path) -> list[dict[str, Any]]:
    """Return the flags of each launch of a suite's tables `[[run]]`, as a person would type them."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    for table in ("latency", "probe"):
        content.pop(table, None)
    if "prompts" in content:
        content["prompts"] = str(path.parent / content["prompts"])
    return [content | run for run in content.pop("run")]
