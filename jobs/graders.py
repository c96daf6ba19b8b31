"""The grader of a run: the built-in one or a user's function (`grading.own_grader`).

The grader is not part of the run's specification, because several graders may grade the same samples. The grader given
last, by a launch or another command, applies from then on. The run's events record it; its code is in the run folder:

    runs/<run_id>/grader-<12 hex digits of its hash>.zip

Jobs and `jobs finalize` use this copy, so edits of the original file have no effect until it is given again. The hash
is part of the grader version. Grader code in a run folder must be trusted, like the code of a method.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grading import grader_version
from grading.own_grader import VERSION, OwnGrader
from harness.methods.plugins import BadMethod, OwnCode, Source
from harness.methods.references import located, packed, unpacked
from harness.settings.launch_settings import BUILT_IN_GRADER
from jobs.run import codes, trust
from jobs.run.files import records_of
from jobs.run.folder import RunFolder

LIMITS: Mapping[str, float] = {"SECONDS": 10, "GIBIBYTES": 2}
"""Default limits per answer; a grader's file may override them by defining these names."""


@dataclass(frozen=True)
class GraderRecord:
    """The grader of a run, as recorded in its events."""

    reference: str | None = None
    """`file.py:function` without the folder, or `package.module:function`; None: the built-in grader."""
    code_hash: str = ""
    """Hash of the grader's files, 16 hex digits; empty for the built-in grader."""

    @property
    def version(self) -> str:
        """Grader version recorded in the grades."""
        if self.reference is None:
            return grader_version()
        return f"{VERSION} {self.reference} {self.code_hash[: codes.SHOWN_DIGITS]}"


def resolve(reference: str) -> OwnCode | None:
    """Import and return the grader given by the user; None for the built-in one. Raises BadMethod."""
    if reference == BUILT_IN_GRADER:
        return None
    try:
        return _grader(*located(reference, "function"))
    except BadMethod as error:
        raise BadMethod(f"--grader {reference}: {error}") from error


def record_of(grader: OwnCode | None) -> GraderRecord:
    """Return the record of a grader."""
    return GraderRecord() if grader is None else GraderRecord(grader.reference, grader.code_hash)


def recorded(run: RunFolder) -> GraderRecord:
    """Return the record of a run's current grader."""
    return [GraderRecord(), *records_of(run.events_path, GraderRecord, run.events("grader"))][-1]


def record(run: RunFolder, grader: OwnCode | None) -> None:
    """Use a grader for a run from now on and trust its code, which this user provided."""
    if grader is not None:
        content = packed(grader)
        codes.keep(run, "grader", grader.code_hash, content)
        trust.remember(run, trust.code("grader", grader.reference, content))
    if (found := record_of(grader)) != recorded(run):
        run.append("grader", **asdict(found))


def settle(run: RunFolder, reference: str | None, *, accept: bool) -> None:
    """Select a run's grader: the given one or, with None, the recorded one if this user trusts it.

    Untrusted code is shown; with `accept` it is accepted. Raises BadMethod and trust.NotTrusted.
    """
    if reference is None:
        trust.ask(run, code_recorded(run), accept=accept)
    else:
        record(run, resolve(reference))


def code_recorded(run: RunFolder) -> list[trust.Recorded]:
    """Return the code that would be loaded from the run folder for grading. Raises BadMethod."""
    known = recorded(run)
    return [] if known.reference is None else trust.code("grader", known.reference, _archived(run, known))


def code_of(run: RunFolder) -> OwnCode | None:
    """Load a run's custom grader from its folder; None for the built-in one.

    Raises BadMethod if the grader is missing or cannot be loaded, and trust.NotTrusted.
    """
    known = recorded(run)
    if known.reference is None:
        return None
    content = _archived(run, known)
    trust.require(run, trust.code("grader", known.reference, content))
    return unpacked(content, _grader, known.code_hash, known.reference)


def grader_of(run: RunFolder) -> OwnGrader | None:
    """Return a run's custom grader in the form used by grader processes; None for the built-in one.

    Raises BadMethod and trust.NotTrusted.
    """
    code = code_of(run)
    if code is None:
        return None
    module, limits = code.source.module, _limits(code.source.module)
    is_file = code.reference.partition(":")[0].endswith(".py")
    place = code.source.origin if is_file else module.__name__
    return OwnGrader(place, code.name, limits["SECONDS"], int(limits["GIBIBYTES"] * 2**30))


def _grader(source: Source, name: str, reference: str) -> OwnCode:
    function = getattr(source.module, name, None)
    if not callable(function):
        raise BadMethod(f"has no function {name}")
    try:
        inspect.signature(function).bind("text", "gold", {})
    except TypeError as error:
        raise BadMethod(f"{name} must accept the arguments (text, gold, problem): {error}") from error
    _limits(source.module)
    return OwnCode(name, reference, source)


def _limits(module: Any) -> dict[str, float]:
    found = {name: getattr(module, name, usual) for name, usual in LIMITS.items()}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise BadMethod(f"{name} = {value!r}: expected a finite number above 0")
    return found


def _archived(run: RunFolder, known: GraderRecord) -> bytes:
    remedy = f"pass it again with --grader {known.reference}"
    return codes.kept(run, "grader", known.code_hash, f"its grader {known.reference}", remedy)
