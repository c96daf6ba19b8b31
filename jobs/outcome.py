"""What `--json` prints of runs: the outcome of a launch on one line, and the status of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import orjson

from harness.cli import exit_codes, permissions
from jobs.after import warehouse
from jobs.run.folder import RunFolder
from jobs.watch.listing import listed
from jobs.watch.status import RunStatus


class Outcome:
    """The outcome of a launch, as far as it is known."""

    run: RunFolder | None = None
    """The run folder, which need not exist; None before the launch is planned."""

    def record(self, exit_code: int = 0, error: str | None = None) -> dict[str, Any]:
        """Return the outcome: where the run is, how far it is, and once it is finished what `results.json` holds."""
        outcome: dict[str, Any] = {"exit_code": exit_code, "error": error}
        if self.run is None:
            return outcome
        path = self.run.path
        outcome |= {"run": str(path), "run_id": path.name, "database": str(warehouse.database_of(self.run))}
        if not self.run.exists():
            return {**outcome, "state": "not begun"}
        [listing] = [asdict(run) for run in listed([self.run])]
        results = _results(self.run.results_path) if listing["state"] == "finished" else {}
        found = {**outcome, **listing, "error": error or listing["error"]}
        return found | {name: value for name, value in results.items() if name not in found}


def _results(path: Path) -> dict[str, Any]:
    """Return what the file holds; nothing where there is none, or it is damaged."""
    try:
        content = orjson.loads(path.read_bytes())  # refuses NaN and what is nested too deep
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def printed(*, as_json: bool) -> Iterator[Outcome]:
    """Print the outcome of a launch as the last line of standard output, whether it succeeds or not.

    Errors go on as they are. Nothing is printed if not `as_json`.
    """
    outcome = Outcome()
    try:
        yield outcome
    except click.ClickException as error:
        _print(outcome, error.exit_code, " ".join(error.format_message().split()), as_json=as_json)
        raise
    except OSError as error:
        if permissions.is_forbidden(error):
            _print(outcome, exit_codes.WRONG_INPUT, permissions.explained(error), as_json=as_json)
        raise
    _print(outcome, as_json=as_json)


def _print(outcome: Outcome, exit_code: int = 0, error: str | None = None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(outcome.record(exit_code, error), allow_nan=False))


def of_status(status: RunStatus, run: RunFolder) -> dict[str, Any]:
    """Return how a run stands, under the keys of `jobs list --json`, with its shards."""
    names = (
        "run_id", "planned", "finished", "failed", "in_flight", "may_progress", "is_on_slurm", "tokens_per_second",
        "samples_per_second", "eta_seconds", "gpu_hours", "shared_with", "codes", "free_bytes", "missing",
        "how_to_conclude", "slurm_error",
    )  # fmt: skip
    is_begun = status.finished > 0 or status.in_flight > 0
    state = "finished" if status.finished == status.planned else "under way" if is_begun else "not begun"
    shards = [{**asdict(shard), "num_unfinished": shard.num_unfinished} for shard in status.shards]
    return {
        "run": str(run.path),
        "state": state,
        **{name: getattr(status, name) for name in names},
        "states": dict(status.states),
        "shards": shards,
    }
