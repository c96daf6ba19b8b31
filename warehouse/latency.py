"""The latency model fitted to recorded calls: `python -m warehouse.latency --database DATABASE [RUN …]`.

Fitted and predicted within one run: the same machine, load and concurrency. Cross-validation fits on half of the
samples, drawn at random, and predicts the median latency of the other half.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from harness.engine import Role
from harness.latency import LatencyModel, ModelSpeed, Work
from warehouse.database import Connection, WarehouseError, reader, rows
from warehouse.display import plain
from warehouse.options import WarehouseCommand, database_option

_CALLS = """
SELECT sample_id, model, purpose, prompt_tokens - cached_tokens AS new_prompt_tokens, longest_output_tokens, n,
    in_flight, end_seconds, overlapped_seconds, latency_seconds
FROM timed_sample LEFT JOIN call USING (run_id, sample_id)
WHERE run_id = $run_id ORDER BY sample_id, call_index
"""
_RUNS = "SELECT run_id FROM run WHERE run_id IN (SELECT run_id FROM timed_sample) ORDER BY run_id"
SPLITS = 50
ENOUGH_SAMPLES = 4
"""Below this many a half is one sample, and cross-validation says nothing."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One call and what it took."""

    work: Work
    seconds: float
    purpose: str
    overlapped_seconds: float = 0.0
    """Of `seconds`, how long the sample did not wait for it."""


@dataclass(frozen=True, slots=True)
class TimedSample:
    """The calls of one sample, and the wall time of all of it."""

    calls: tuple[TimedCall, ...]
    latency_seconds: float

    @property
    def work(self) -> list[Work]:
        """What was asked of the engines and waited for."""
        return [call.work for call in self.calls if call.purpose != "lookahead"]


@dataclass(frozen=True, slots=True)
class Validation:
    """Errors of the predicted median latency, as fractions of the observed one."""

    observed_median_seconds: float
    fitted_error: float
    """Fitted and predicted on the same samples."""
    errors: tuple[float, ...]
    """Of every random split: fitted on one half, predicted on the other. Empty where samples are too few."""

    @property
    def typical(self) -> float | None:
        """Median of the errors' sizes."""
        return statistics.median(map(abs, self.errors)) if self.errors else None

    @property
    def largest(self) -> float | None:
        """The worst split."""
        return max(map(abs, self.errors)) if self.errors else None


def timed_samples(connection: Connection, run_id: str) -> list[TimedSample]:
    """Samples of a run whose latency means something, with their calls. Raises WarehouseError where there are none."""
    calls: dict[str, list[TimedCall]] = {}
    latency: dict[str, float] = {}
    for row in rows(connection, _CALLS, {"run_id": run_id}):
        sample = str(row["sample_id"])
        latency[sample] = _number(row["latency_seconds"])
        calls.setdefault(sample, [])
        if row["model"] is not None:
            calls[sample].append(_call(row, calls[sample]))
    if not latency:
        raise WarehouseError(f"the warehouse holds no finished samples of a run {run_id!r}")
    return [TimedSample(tuple(calls[sample]), seconds) for sample, seconds in latency.items()]


def fit(samples: Sequence[TimedSample]) -> LatencyModel:
    """Least squares over calls, no speed below zero (Lawson and Hanson 1974, by scipy).

    A speed whose cause does not vary in the run is zero or shares the effect with another.
    """
    calls = [call for sample in samples for call in sample.calls]
    roles: list[Role] = ["draft", "target"]
    speeds = {role: _speed([c for c in calls if c.work.model == role]) for role in roles}
    overheads = [s.latency_seconds - sum(c.seconds - c.overlapped_seconds for c in s.calls) for s in samples]
    kept = {role: speed for role, speed in speeds.items() if speed is not None}
    return LatencyModel(kept, max(0.0, statistics.fmean(overheads)))


def validate(samples: Sequence[TimedSample], splits: int = SPLITS, seed: int = 0) -> Validation:
    """How well the median latency is predicted, in the fit and by cross-validation."""
    draw = random.Random(seed)
    errors = []
    for _ in range(splits if len(samples) >= ENOUGH_SAMPLES else 0):
        mixed = draw.sample(list(samples), len(samples))
        half = len(mixed) // 2
        error = _error(fit(mixed[:half]), mixed[half:])
        if error is not None:
            errors.append(error)
    observed = statistics.median(s.latency_seconds for s in samples)
    return Validation(observed, _error(fit(samples), samples) or 0.0, tuple(errors))


def _error(model: LatencyModel, samples: Sequence[TimedSample]) -> float | None:
    """Error of the median; None where the fit has not seen a model that is needed."""
    if not {w.model for s in samples for w in s.work} <= set(model.speeds):
        return None
    predicted = statistics.median(model.sample_seconds(s.work) for s in samples)
    return predicted / statistics.median(s.latency_seconds for s in samples) - 1


def _speed(calls: Sequence[TimedCall]) -> ModelSpeed | None:
    if not calls:
        return None
    causes = np.array([call.work.features() for call in calls], dtype=float)
    scale = causes.max(axis=0)  # causes are of very unlike size
    scale[scale == 0] = 1.0
    found, _ = nnls(causes / scale, np.array([call.seconds for call in calls]))
    return ModelSpeed(**{f.name: float(x) for f, x in zip(fields(ModelSpeed), found / scale, strict=True)})


def _call(row: Mapping[str, object], before: Sequence[TimedCall]) -> TimedCall:
    """One call; a draft that the sample did not wait for from its beginning was begun under the verdict before it."""
    overlapped = _number(row["overlapped_seconds"])
    verdicts = (call.work for call in reversed(before) if call.purpose == "verdict")
    work = Work(
        model="draft" if row["model"] == "draft" else "target",
        calls=1,
        new_prompt_tokens=_number(row["new_prompt_tokens"]),
        output_tokens=_number(row["longest_output_tokens"]),
        further_completions=_number(row["n"]) - 1,
        further_requests=_number(row["in_flight"]) - 1,
        begun_under=next(verdicts, None) if overlapped > 0 and row["purpose"] == "draft" else None,
    )
    return TimedCall(work, _number(row["end_seconds"]), str(row["purpose"]), overlapped)


def _number(value: object) -> float:
    return float(str(value))


@click.command(cls=WarehouseCommand)
@click.argument("runs", metavar="[RUN]…", nargs=-1)
@database_option()
@click.option("--splits", type=click.IntRange(1), default=SPLITS, show_default=True, help="Random halves.")
@click.option("--speeds", is_flag=True, help="Print the fitted speeds too, in seconds.")
def main(runs: tuple[str, ...], database: Path, splits: int, speeds: bool) -> None:
    """Fit the latency model to each run (default: all) and say how well it predicts the run's median latency."""
    console = Console(highlight=False)
    with reader(database) as connection:
        chosen = runs or tuple(str(row["run_id"]) for row in rows(connection, _RUNS))
        found = {run: timed_samples(connection, run) for run in chosen}
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("run", "samples", "median (s)", "fit", "halves: typical", "halves: worst"):
        table.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    for run, samples in found.items():
        checked = validate(samples, splits)
        numbers = (checked.fitted_error, checked.typical, checked.largest)
        shown = [
            ("–" if x is None else f"{100 * x:+.1f} %" if i == 0 else f"{100 * x:.1f} %") for i, x in enumerate(numbers)
        ]
        table.add_row(plain(run), str(len(samples)), f"{checked.observed_median_seconds:.1f}", *shown)
    console.print(table)
    console.print(
        "Errors of the predicted median latency. Halves: fitted on one, predicted on the other.", soft_wrap=True
    )
    for run, samples in found.items() if speeds else ():
        model = fit(samples)
        console.print(plain(f"{run}: {model.sample_overhead_seconds:.3g} s a sample beside its calls"), soft_wrap=True)
        for role, speed in model.speeds.items():
            console.print(f"  {role}: " + ", ".join(f"{f.name} {getattr(speed, f.name):.3g}" for f in fields(speed)))


if __name__ == "__main__":
    main(prog_name="python -m warehouse.latency")
