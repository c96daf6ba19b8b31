"""Which code a run is worked on with: recorded when it begins, checked whenever it goes on, mixed only where asked for.

The run's events have one of each code that may work on the run. The code is no part of the run's id,
because whether a change matters is for a person to say: with `--tag` the launch is a new run, with
`--accept-code-change` the run goes on, and each attempt records its own code and the others.

A run's method that is not part of this package has its code in the run folder, and whoever runs it finds it there:

    runs/<run_id>/method-<12 hex digits of its hash>.zip

The archive is written when a code is recorded for the run, so that workers and a later resume need neither the file
that was named at the launch nor its folder. A job runs the method from the code that was submitted with it. What lies
in a run folder is imported only where this user trusts it (trust.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote

from harness import environment
from harness.code_hash import ROOT, Code, changed_files, running_code
from harness.methods import plugins
from harness.methods.plugins import BadMethod, MethodSource, PlugIn, recorded_hash
from harness.methods.references import load_packed, packed
from harness.prompts import prompt_hash
from jobs.run import endings, submissions, trust
from jobs.run.files import reading, records_of, write_atomically
from jobs.run.folder import RunFolder
from jobs.run.spec import night_of

SHOWN_DIGITS = 12
_GO_ON = "to go on with both in one run, which its results then say, add --accept-code-change"


class CodeChanged(ValueError):
    """A run was begun by other code than this; the message is one line that says what to do."""


@dataclass(frozen=True)
class CodeRecord:
    """One code that may work on a run."""

    code_hash: str
    """Hash of the code (harness.code_hash)."""
    git_commit: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """The digest of each file that is part of the hash."""
    replaces: bool = False
    """True where nothing had been done with the code recorded before, which may work on the run no longer."""

    def __str__(self) -> str:
        commit, dash, dirty = (self.git_commit or "").partition("-")
        return f"code {self.code_hash}" + (f" (commit {commit[:SHOWN_DIGITS]}{dash}{dirty})" if commit else "")


def read(run: RunFolder) -> list[CodeRecord]:
    """Return the codes that may work on a run, in the order in which they were recorded; empty where none was."""
    records: list[CodeRecord] = []
    for code in records_of(run.events_path, CodeRecord, run.events("code")):
        records = [code] if code.replaces else [*records, code]
    return records


def code_of(run: RunFolder) -> Code:
    """Return the code that this process runs of a run: this package and, where it is not part of it, the run's method.

    Raises BadMethod where that method cannot be loaded.
    """
    code, plugin = running_code(), method_of(run)
    return code if plugin is None else Code({**code.digests, **plugin.recorded_digests})


def check(run: RunFolder, *, accept: bool = False, goes_on: bool = False) -> str | None:
    """Return what somebody who launches or resumes a run with this code should know; None where nothing has changed.

    Nothing is written. `goes_on`: whether more will be run although the run is finished. Raises CodeChanged where the
    run goes on, was begun by other code, and `accept` is false.
    """
    if not (run.exists() and _has_attempts(run) and (records := _others(run))):
        return None
    if not goes_on and endings.num_unfinished(run) == 0:
        return f"CODE CHANGED: {_begun(run, records)}."
    if not accept:
        raise CodeChanged(f"{_begun(run, records)}; {_GO_ON}")
    return f"CODE CHANGED: {_begun(run, records)}; both are in it from now on."


def claim(run: RunFolder, *, accept: bool = False, is_queued: bool | None = None) -> list[str]:
    """Record that this code works on a run; returns the hashes of the other codes that do, or did.

    `is_queued`: whether jobs of an earlier code may be waiting; None: where any was ever submitted. Where none is and
    no worker has recorded anything, this code replaces the other. Raises CodeChanged, also where this code would send
    other prompts than the run's finished samples were sent, and BadMethod.
    """
    plugin, spec = method_of(run), run.spec()
    if (current := prompt_hash(spec.wording)) != spec.prompt_hash:
        raise CodeChanged(
            f"{spec.run_id} was begun with other prompts ({spec.prompt_hash}; this code sends {current}), so it cannot "
            "be resumed. Its finished samples remain valid; launch it again for a new run, or resume it with the code "
            "that began it"
        )
    records, code = read(run), code_of(run)
    if code.hash not in _hashes(records):
        may_wait = bool(submissions.read(run)) if is_queued is None else is_queued
        with run.lock("code"):
            records = read(run)
            if code.hash not in _hashes(records):  # another process may just have recorded it
                replaces = bool(records) and not _has_attempts(run) and not may_wait
                if records and not replaces and not accept:
                    raise CodeChanged(f"{_begun(run, records)}; {_GO_ON}")
                added = CodeRecord(code.hash, environment.git_commit(), code.digests, replaces)
                run.append("code", **asdict(added))
                records = [added] if replaces else [*records, added]
    if plugin is not None:  # its code in the run folder is what the workers run that this process starts
        content = packed(plugin)
        keep(run, "method", plugin.code_hash, content)
        trust.remember(run, trust.code("method", plugin.reference, content))
    return [record.code_hash for record in records if record.code_hash != code.hash]


def check_queued(run: RunFolder) -> None:
    """Raise CodeChanged where other code's jobs are running or queued for all that is left of a run.

    A launch under this code would then submit nothing, and somebody would take those jobs' numbers for this code's.
    """
    if (records := _others(run)) and endings.num_unfinished(run):
        cancel = (
            f"to replace its jobs, cancel them (python -m jobs cancel {quote(str(run.path))}) and repeat this command"
        )
        raise CodeChanged(f"{_begun(run, records)}; {_GO_ON if _has_attempts(run) else cancel}")


def _others(run: RunFolder) -> list[CodeRecord]:
    """Return the codes that may work on a run; none where this is one of them."""
    records = read(run)
    return records if records and code_of(run).hash not in _hashes(records) else []


def _hashes(records: Sequence[CodeRecord]) -> set[str]:
    return {record.code_hash for record in records}


def _has_attempts(run: RunFolder) -> bool:
    return bool(run.journals() or run.trace_files())


def _begun(run: RunFolder, records: Sequence[CodeRecord]) -> str:
    """Return in words which codes began a run, how this one differs from the last, and how it gets a run of its own."""
    this, code = CodeRecord(code_of(run).hash, environment.git_commit()), code_of(run)
    names = changed_files(records[-1].files, code.digests) if records[-1].files else ""
    difference = f": {names} differ{'' if ' ' in names else 's'}" if names else ""
    is_of_night = night_of(run.spec().tag) is not None
    own = f"For a run of this code, launch {'a night with another --date' if is_of_night else 'with --tag NAME'}"
    return f"{run.path.name} was begun by {' and '.join(map(str, records))}, and this is {this}{difference}. {own}"


SUBMITTED = "own_methods"
"""Folder of submitted code with one archive for each method of the process that submitted it, by name."""


def method_of(run: RunFolder) -> PlugIn | None:
    """Return the run's method, loaded into this process; None where it is a built-in one.

    In the run folder it is that of the code recorded last. Raises BadMethod where it is not found, and
    trust.NotTrusted.
    """
    spec = run.spec()
    if spec.method_source is None:
        return None
    if loaded := plugins.registered.get(spec.method) or load_submitted(spec.method):
        return loaded
    code_hash, content = _archived(run, spec.method, spec.method_source)
    trust.require(run, trust.code("method", spec.method_source.reference, content))
    return load_packed(content, code_hash, spec.method_source.reference)


def recorded_method(run: RunFolder) -> list[trust.Recorded]:
    """Return the code of a method that working on a run would load from its folder. Raises BadMethod."""
    spec = run.spec()
    if spec.method_source is None or spec.method in plugins.registered:
        return []
    _, content = _archived(run, spec.method, spec.method_source)
    return trust.code("method", spec.method_source.reference, content)


def load_submitted(name: str) -> PlugIn | None:
    """Return the method of this name that was submitted with the code that this process runs; None: there is none.

    Raises BadMethod.
    """
    archive = ROOT / SUBMITTED / f"{name}.zip"
    return load_packed(archive.read_bytes()) if archive.is_file() else None


def _archived(run: RunFolder, name: str, source: MethodSource) -> tuple[str, bytes]:
    """Return the hash that the code of a run's method should have, and its archive. Raises BadMethod."""
    hashes = [recorded_hash(record.files) for record in reversed(read(run))]
    code_hash = next(filter(None, hashes), source.code_hash)
    return code_hash, kept(
        run, "method", code_hash, f"its method {name}", f"launch it with --method {source.reference}"
    )


def keep(run: RunFolder, kind: str, code_hash: str, content: bytes) -> None:
    """Write an archive of own code into a run folder, unless it is there."""
    path = _archive(run, kind, code_hash)
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def kept(run: RunFolder, kind: str, code_hash: str, what: str, remedy: str) -> bytes:
    """Return the archive of own code in a run folder. Raises BadMethod, which says what is missing and what to do."""
    path = _archive(run, kind, code_hash)
    try:  # one look: what a link or a pipe names may be another file at the next
        with reading(path) as file:
            return file.read()
    except OSError as error:
        raise BadMethod(f"{run.path.name} has no code of {what} ({path.name}): {remedy}") from error


def _archive(run: RunFolder, kind: str, code_hash: str) -> Path:
    return run.path / f"{kind}-{code_hash[:SHOWN_DIGITS]}.zip"
