"""What `python -m jobs prune` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from harness.cli.program import typed
from harness.plural import counted
from jobs.after.warehouse import WarehouseFailed
from jobs.nights import archive, pruning
from jobs.nights.archive import ArchiveFailed
from jobs.nights.pruning import Pruning
from jobs.run.named import meant_by
from jobs.slurm.client import SlurmError

_SHOWN = 5
_MEBIBYTE = 2**20


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn what pruning raises into one line: exit code 2 where nothing was done, 1 where it was broken off."""
    try:
        yield
    except WarehouseFailed as error:
        raise click.UsageError(f"nothing was pruned: {error}") from error
    except SlurmError as error:
        raise click.ClickException(f"nothing was pruned, because Slurm failed: {error}") from error
    except (ArchiveFailed, OSError) as error:
        raise click.ClickException(f"{error}; nothing is lost, and the same command goes on") from error


def prune(folder: Path, keep_nights: int, archives: Path, *, is_agreed: bool) -> None:
    """Say what is pruned, and do it where that was agreed to."""
    planned = pruning.plan(folder, keep_nights, archives)
    _print_plan(planned, keep_nights)
    if not (planned.runs or planned.leftovers or planned.without_details):
        return
    if not is_agreed:
        click.echo("Nothing was changed. To do it, add --yes.")
        return
    before = _database_bytes(planned)
    number = pruning.prune(planned)
    click.echo(
        f"archived {counted(number, 'run')}; the database has {_database_bytes(planned) / _MEBIBYTE:.1f} MiB, before "
        f"{before / _MEBIBYTE:.1f} MiB"
    )


def restore(names: Sequence[str], archives: Path, folder: Path) -> None:
    """Unpack archives; loading the runs brings their details back into the database."""
    for name in names:
        sought = Path(name).name
        found = meant_by(sought, archive.archived(archives)) if sought else []
        if len(found) > 1:
            raise ArchiveFailed(f"{name} is the beginning of {len(found)} archived runs: {', '.join(found)}")
        run = archive.restore(found[0] if found else sought, archives, folder)
        click.echo(f"restored; to load its steps and calls again:  {typed('warehouse.load')} {quote(str(run.path))}")


def _print_plan(planned: Pruning, keep_nights: int) -> None:
    if planned.runs:
        nights = sorted(planned.nights)
        num_files, num_bytes = planned.size()
        click.echo(
            f"{counted(len(planned.runs), 'run')} of {counted(len(nights), 'night')}, {nights[0]} to {nights[-1]}: "
            f"{counted(num_files, 'file')}, {num_bytes / _MEBIBYTE:.1f} MiB, one archive each in {planned.archive}"
        )
        click.echo(f"{planned.database} keeps their results and forgets their steps, candidates, calls and prompts")
    else:
        click.echo(f"no run to archive: {planned.output} keeps its newest {counted(keep_nights, 'night')}")
    if planned.without_details:
        number = counted(len(planned.without_details), "run")
        click.echo(f"{number} archived before: the database still has details of them")
    if planned.leftovers:
        click.echo(f"{counted(len(planned.leftovers), 'log or code file', 'log and code files')} of old verdict jobs")
    reasons = Counter(kept.why for kept in planned.kept)
    for why, num_runs in reasons.most_common(_SHOWN):
        example = next(kept.run for kept in planned.kept if kept.why == why)
        more = f" and {num_runs - 1} more" if num_runs > 1 else ""
        click.echo(f"stays: {example}{more}: {why}")
    if len(reasons) > _SHOWN:
        click.echo(f"stay for other reasons: {sum(reasons.values()) - sum(n for _, n in reasons.most_common(_SHOWN))}")


def _database_bytes(planned: Pruning) -> int:
    return planned.database.stat().st_size if planned.database.exists() else 0
