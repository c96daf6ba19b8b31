"""How well the latency model predicts a run from runs that differ only in the number of samples in flight.

This is what a projection to another concurrency rests on. Nothing here tests a projection to another machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from harness.hardware import crowded_latencies
from warehouse.database import Connection, rows
from warehouse.display import plain
from warehouse.formatting import fixed, signed
from warehouse.latency_fit import TimedSample, fit

_KINDS = """
SELECT run_id, samples_in_flight AS concurrency, hash(method, params, dataset, draft_fingerprint, target_fingerprint,
    selection_fingerprint, reward_fingerprint, temperature, top_p, draft_sampling, target_sampling, draft_template,
    target_template,
    draft_thinking_tags, target_thinking_tags, engine_draft_arguments, engine_target_arguments, token_budget,
    engine_kind, engine_dtype, engine_draft_tensor_parallel,
    engine_target_tensor_parallel, engine_spec_decode, engine_spec_tokens, engine_spec_sampling,
    speculator_fingerprint, engine_take_turns, engine_draft_gpus, engine_target_gpus, devices) AS kind
FROM run JOIN run_conditions USING (run_id)
"""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A run's median latency predicted from other runs; errors are fractions of the observed median."""

    run_id: str
    concurrency: int
    """Samples in flight of the predicted run."""
    fitted_on: tuple[int, ...]
    """Samples in flight of the runs that the model was fitted to."""
    observed_median_seconds: float
    error: float
    """With the requests in flight that the run recorded: the error of the fitted speeds."""
    projected_error: float
    """With the requests in flight estimated from the samples in flight, as a projection has to."""


def transfers(connection: Connection, samples_by_run: Mapping[str, Sequence[TimedSample]]) -> list[Transfer]:
    """Predict every run from each run of the same kind at another concurrency, and from all of those together.

    A kind: method, parameters, dataset, models, sampling, engine settings and devices. Problems, seeds and package
    versions may differ. Runs that use a model for which a fit has no speeds are left out.
    """
    by_kind: dict[str, list[tuple[int, str]]] = {}
    for row in rows(connection, _KINDS):
        if str(row["run_id"]) in samples_by_run:
            by_kind.setdefault(str(row["kind"]), []).append((int(str(row["concurrency"])), str(row["run_id"])))
    found = []
    for runs in by_kind.values():
        for concurrency, run_id in sorted(runs):
            others = sorted({other for other, _ in runs if other != concurrency})
            choices = [(other,) for other in others] + ([tuple(others)] if len(others) > 1 else [])
            for fitted_on in choices:
                pooled = [s for number, other in runs if number in fitted_on for s in samples_by_run[other]]
                transfer = _transfer(run_id, concurrency, fitted_on, pooled, samples_by_run[run_id])
                if transfer is not None:
                    found.append(transfer)
    return found


def _transfer(
    run_id: str,
    concurrency: int,
    fitted_on: tuple[int, ...],
    pooled: Sequence[TimedSample],
    samples: Sequence[TimedSample],
) -> Transfer | None:
    model = fit(pooled)
    if not {work.model for sample in samples for work in sample.work} <= set(model.speeds):
        return None
    observed = statistics.median(sample.latency_seconds for sample in samples)
    recorded = statistics.median(model.sample_seconds(sample.work) for sample in samples)
    projected, _ = crowded_latencies([sample.work for sample in samples], model, concurrency)
    return Transfer(
        run_id, concurrency, fitted_on, observed, recorded / observed - 1, statistics.median(projected) / observed - 1
    )


def transfer_table(found: Sequence[Transfer]) -> Table:
    """Return the predictions as a table."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("run", "in flight", "fitted at", "median (s)", "error", "error, in flight estimated"):
        table.add_column(name, justify="left" if name == "run" else "right", overflow="fold")
    for transfer in found:
        table.add_row(
            plain(transfer.run_id),
            str(transfer.concurrency),
            " and ".join(map(str, transfer.fitted_on)),
            fixed(transfer.observed_median_seconds, 2),
            f"{signed(100 * transfer.error, 1)} %",
            f"{signed(100 * transfer.projected_error, 1)} %",
        )
    return table
