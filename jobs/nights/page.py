"""The page of a night: its verdict as `warehouse.nightly` writes it, what is missing and why, what was recovered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.plural import counted
from jobs.nights.record import NightRecord
from jobs.nights.recovery import Gap
from jobs.run.files import write_atomically

_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})


def partial(gaps: Sequence[Gap]) -> str:
    """Return one line that says that a night is partial; empty where it is whole."""
    if not gaps:
        return ""
    runs = counted(len({gap.run for gap in gaps}), "run")
    missing = sum(gap.missing for gap in gaps)
    of_all = any(not gap.planned for gap in gaps)
    samples = f"{counted(missing, 'sample')} of {runs} {'is' if missing == 1 else 'are'} missing"
    return (
        f"PARTIAL NIGHT: {runs} cannot be read or never began"
        if of_all and not missing
        else (f"PARTIAL NIGHT: {samples}" + (", and runs that cannot be read or never began" if of_all else ""))
    )


def write(page: Path, verdict: str, gaps: Sequence[Gap], record: NightRecord, notes: Sequence[str]) -> None:
    """Write the page; `verdict` is Markdown that begins with a line of its own for the verdict."""
    opening, _, rest = verdict.partition("\n")
    lines = [opening, *([f"\n**{partial(gaps)}**"] if gaps else []), rest.rstrip("\n")]
    if gaps:
        lines += ["\n## Missing\n", *(f"- {_escaped(str(gap))}" for gap in gaps)]
    happened = [*_recoveries(record), *notes]
    if happened:
        lines += ["\n## Recovered\n", *(f"- {_escaped(line)}" for line in happened)]
    write_atomically(page, ("\n".join(lines) + "\n").encode())


def _recoveries(record: NightRecord) -> Iterator[str]:
    """Yield one line for everything that the night did to become whole."""
    for event in record.events():
        at = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M} UTC"
        if event["event"] == "recovered":
            yield f"{at}: unfinished shards of {', '.join(sorted(event['work']))} were submitted again"
        elif event["event"] == "grading":
            yield f"{at}: {event['run']} was graded and loaded by the verdict job, because its own job had not"
    starts = len(record.events("started"))
    expected = 1 + len(record.events("handed on"))
    if starts > expected:
        yield f"the verdict job was started again {counted(starts - expected, 'time')} after it had died"


def _escaped(line: str) -> str:
    return "".join(character for character in line if character.isprintable()).translate(_ESCAPED)
