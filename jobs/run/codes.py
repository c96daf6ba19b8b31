"""Record which code works on a run, check it on resume, and mix code versions only on request.

The run's events record each code version that may work on the run. The code is not part of the run's id, because users
decide whether a change matters: `--tag` makes the launch a new run, `--accept-code-change` continues the existing run.
Each attempt records its own code version and the others of the run.

Code of a method outside this package is stored in the run folder:

    runs/<run_id>/method-<12 hex digits of its hash>.zip

The archive is written when a code version is recorded, so workers and later resumes do not need the original file. A
job uses the method that was submitted with it. Code in a run folder is imported only if this user trusts it (trust.py).
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
_GO_ON = "to continue this run with both code versions (its results will list them), add --accept-code-change"


class CodeChanged(ValueError):
    """The run was started with other code; the one-line message includes the remedies."""


@dataclass(frozen=True)
class CodeRecord:
    """One code version that has worked on a run or may do so."""

    code_hash: str
    """Hash of the code (harness.code_hash)."""
    git_commit: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    """Digest of each file included in the hash."""
    replaces: bool = False
    """True if this code version replaces the earlier ones, which had not worked on the run."""

    def __str__(self) -> str:
        commit, dash, dirty = (self.git_commit or "").partition("-")
        return f"code {self.code_hash}" + (f" (commit {commit[:SHOWN_DIGITS]}{dash}{dirty})" if commit else "")


def read(run: RunFolder) -> list[CodeRecord]:
    """Return the recorded code versions, which have worked on a run or may do so, in order; empty if there are none."""
    records: list[CodeRecord] = []
    for code in records_of(run.events_path, CodeRecord, run.events("code")):
        records = [code] if code.replaces else [*records, code]
    return records


def code_of(run: RunFolder) -> Code:
    """Return the code used for a run: this package, plus the run's method if it is defined elsewhere.

    Raises BadMethod if that method cannot be loaded.
    """
    code, plugin = running_code(), method_of(run)
    return code if plugin is None else Code({**code.digests, **plugin.recorded_digests})


def check(run: RunFolder, *, accept: bool = False, goes_on: bool = False) -> str | None:
    """Return a notice if work on the run has begun, but this code is not among its recorded versions; otherwise None.

    Writes nothing. `goes_on`: more work follows even if the run is finished. Raises CodeChanged if the run continues,
    was started with other code, and `accept` is false.
    """
    if not (run.exists() and _has_attempts(run) and (records := _others(run))):
        return None
    if not goes_on and endings.num_unfinished(run) == 0:
        return f"CODE CHANGED: {_begun(run, records)}."
    if not accept:
        raise CodeChanged(f"{_begun(run, records)}; {_GO_ON}")
    return f"CODE CHANGED: {_begun(run, records)}. From now on, {run.path.name} has results of several code versions."


def claim(run: RunFolder, *, accept: bool = False, is_queued: bool | None = None) -> list[str]:
    """Record that this code works on a run; return the hashes of the other recorded code versions.

    `is_queued`: whether jobs with an earlier code version may be waiting; None: yes if any was submitted. If none is
    waiting and no worker has recorded anything, this code replaces the earlier versions. Raises BadMethod.
    Raises CodeChanged if this code's prompts differ from the run's, or if other recorded code is not replaced and
    `accept` is false.
    """
    plugin, spec = method_of(run), run.spec()
    if (current := prompt_hash(spec.wording)) != spec.prompt_hash:
        raise CodeChanged(
            f"{spec.run_id} was started with other prompts ({spec.prompt_hash}; this code: {current}), so it cannot be "
            "resumed. Finished samples remain valid. Launch it again for a new run, or resume with the original code."
        )
    records, code = read(run), code_of(run)
    if code.hash not in _hashes(records):
        may_wait = bool(submissions.read(run)) if is_queued is None else is_queued
        with run.lock("code"):
            records = read(run)
            if code.hash not in _hashes(records):  # another process may have recorded it meanwhile
                replaces = bool(records) and not _has_attempts(run) and not may_wait
                if records and not replaces and not accept:
                    raise CodeChanged(f"{_begun(run, records)}; {_GO_ON}")
                added = CodeRecord(code.hash, environment.git_commit(), code.digests, replaces)
                run.append("code", **asdict(added))
                records = [added] if replaces else [*records, added]
    if plugin is not None:  # local workers load the method's code from the run folder
        content = packed(plugin)
        keep(run, "method", plugin.code_hash, content)
        trust.remember(run, trust.code("method", plugin.reference, content))
    return [record.code_hash for record in records if record.code_hash != code.hash]


def check_queued(run: RunFolder) -> None:
    """Raise CodeChanged if a run is unfinished and was submitted with other code only.

    Call this if all remaining samples are running or queued: a launch would submit nothing, and the results of those
    jobs could be mistaken for results of this code.
    """
    if (records := _others(run)) and endings.num_unfinished(run):
        command = f"python -m jobs cancel {quote(str(run.path))}"
        cancel = f"to replace the run's jobs, cancel them ({command}) and repeat this command"
        raise CodeChanged(f"{_begun(run, records)}; {_GO_ON if _has_attempts(run) else cancel}")


def _others(run: RunFolder) -> list[CodeRecord]:
    """Return the code versions recorded for a run; empty if this code is one of them."""
    records = read(run)
    return records if records and code_of(run).hash not in _hashes(records) else []


def _hashes(records: Sequence[CodeRecord]) -> set[str]:
    return {record.code_hash for record in records}


def _has_attempts(run: RunFolder) -> bool:
    return bool(run.journals() or run.trace_files())


def _begun(run: RunFolder, records: Sequence[CodeRecord]) -> str:
    """Describe which code versions started a run, how this code differs, and how to start a separate run."""
    this, code = CodeRecord(code_of(run).hash, environment.git_commit()), code_of(run)
    names = changed_files(records[-1].files, code.digests) if records[-1].files else ""
    difference = f": {names} differ{'' if ' ' in names else 's'}" if names else ""
    is_of_night = night_of(run.spec().tag) is not None
    own = f"To use only this code, launch {'the nightly run with another --date' if is_of_night else 'with --tag NAME'}"
    earlier = " and ".join(map(str, records))
    return f"{run.path.name} was started with {earlier}, but this command runs {this}{difference}. {own}"


SUBMITTED = "own_methods"
"""Folder in the submitted code with an archive for each method of the submitting process, by name."""


def method_of(run: RunFolder) -> PlugIn | None:
    """Load and return the run's method; None for a built-in method.

    If this process does not contain the method, its most recently recorded code is loaded from the run folder. Raises
    BadMethod if that code is missing or unusable, and trust.NotTrusted.
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
    """Return the method's code that workers would load from the run folder. Raises BadMethod."""
    spec = run.spec()
    if spec.method_source is None or spec.method in plugins.registered:
        return []
    _, content = _archived(run, spec.method, spec.method_source)
    return trust.code("method", spec.method_source.reference, content)


def load_submitted(name: str) -> PlugIn | None:
    """Return the method of this name if it was submitted with the code of this process, else None. Raises BadMethod."""
    archive = ROOT / SUBMITTED / f"{name}.zip"
    return load_packed(archive.read_bytes()) if archive.is_file() else None


def _archived(run: RunFolder, name: str, source: MethodSource) -> tuple[str, bytes]:
    """Return the expected hash and the archive of a method's code. Raises BadMethod."""
    hashes = [recorded_hash(record.files) for record in reversed(read(run))]
    code_hash = next(filter(None, hashes), source.code_hash)
    remedy = f"launch it with --method {source.reference}"
    return code_hash, kept(run, "method", code_hash, f"its method {name}", remedy)


def keep(run: RunFolder, kind: str, code_hash: str, content: bytes) -> None:
    """Write an archive of user code to a run folder unless it exists."""
    path = _archive(run, kind, code_hash)
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def kept(run: RunFolder, kind: str, code_hash: str, what: str, remedy: str) -> bytes:
    """Read an archive of user code from a run folder. Raises BadMethod, which includes the remedy."""
    path = _archive(run, kind, code_hash)
    try:  # open only once: a link or pipe may point elsewhere next time
        with reading(path) as file:
            return file.read()
    except OSError as error:
        raise BadMethod(f"{run.path.name} has no code for {what} ({path.name}): {remedy}") from error


def _archive(run: RunFolder, kind: str, code_hash: str) -> Path:
    return run.path / f"{kind}-{code_hash[:SHOWN_DIGITS]}.zip"
