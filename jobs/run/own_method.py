"""A run's method that is not part of this package: its code in the run folder, and whoever runs it finds it there.

    runs/<run_id>/method-<12 hex digits of its hash>.zip

The archive is written when a code is recorded for the run (jobs.run.codes), so that workers and a later resume need
neither the file that was named at the launch nor its folder. A job runs the method from the code that was submitted
with it. What lies in a run folder is imported only where this user has put it there, or the launch that started this
worker has the same code: resuming somebody else's run runs none of their code unasked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.code_hash import Code
from harness.methods import plugins
from harness.methods.plugins import BadMethod, PlugIn, recorded_hash
from harness.methods.references import load_packed, packed
from jobs.run.files import write_atomically
from jobs.run.folder import RunDamaged, RunFolder
from jobs.run.spec import RunSpec

SUBMITTED = "own_methods"
"""Folder of submitted code with one archive for each method of the process that submitted it, by name."""
_TRUSTED = "HARNESS_METHOD_CODE"
"""Environment variable: the hashes of the methods that the launch that started this process has loaded."""
_SHOWN_DIGITS = 12


def available(run: RunFolder, recorded: Sequence[Mapping[str, str]]) -> PlugIn | None:
    """Return the run's method, loaded into this process; None where it is a built-in one.

    `recorded`: the digests by file of each code that may work on the run; the last one's method is loaded. Raises
    BadMethod, with one line, where its code is not found or may not be run.
    """
    spec = _spec(run)
    if spec is None or spec.method_source is None:
        return None
    if (loaded := plugins.registered(spec.method)) is not None:
        return loaded
    if (loaded := load_submitted(spec.method)) is not None:
        return loaded
    wanted = next((found for files in reversed(recorded) if (found := recorded_hash(files))), None)
    return _from_folder(run, spec, wanted or spec.method_source.code_hash)


def load_submitted(name: str) -> PlugIn | None:
    """Return the method of this name that was submitted with the code that this process runs; None: there is none.

    Raises BadMethod.
    """
    path = Path(__file__).resolve().parents[2] / SUBMITTED / f"{name}.zip"
    return load_packed(path.read_bytes()) if path.is_file() else None


def with_method(code: Code, plugin: PlugIn | None) -> Code:
    """Return code with the files of a method that is not part of it."""
    return code if plugin is None else Code({**code.digests, **plugin.recorded_digests})


def keep(run: RunFolder, plugin: PlugIn | None) -> None:
    """Keep a method's code in the run folder; the workers that this process starts may run it."""
    if plugin is None:
        return
    path = _archive(run, plugin.code_hash)
    if not path.exists():
        write_atomically(path, packed(plugin))
    trusted = {*os.environ.get(_TRUSTED, "").split(), plugin.code_hash}
    os.environ[_TRUSTED] = " ".join(sorted(trusted))


def _from_folder(run: RunFolder, spec: RunSpec, code_hash: str) -> PlugIn:
    assert spec.method_source is not None
    path, remedy = _archive(run, code_hash), f"launch it with --method {spec.method_source.reference}"
    try:
        content, owner = path.read_bytes(), path.stat().st_uid
    except FileNotFoundError as error:
        raise BadMethod(f"{run.path.name} has no code of its method {spec.method} ({path.name}): {remedy}") from error
    if owner != os.geteuid() and code_hash not in os.environ.get(_TRUSTED, "").split():
        raise BadMethod(f"{path} is somebody else's code of the method {spec.method}, which is not run: {remedy}")
    return load_packed(content, code_hash)


def _archive(run: RunFolder, code_hash: str) -> Path:
    return run.path / f"method-{code_hash[:_SHOWN_DIGITS]}.zip"


def _spec(run: RunFolder) -> RunSpec | None:
    try:
        return run.spec()
    except RunDamaged:
        return None  # what is damaged is named by those who need it
