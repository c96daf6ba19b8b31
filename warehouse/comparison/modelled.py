"""What the latency model expects of a method with one sample in flight, from the speeds of its two models alone.

The calls that a method's run recorded take, in the model of harness/latency.py, the time to the first token and the
time per token that target and draft have in their own runs; further completions of a call cost nothing. The time to the
first token there is that of a whole prompt that no cache holds, and every call is charged all of it, however few tokens
of its prompt are new. So it is no bound: parallel drafts, long questions, the other engine on the same machine and the
harness make a method slower than this, and the prefix cache makes it faster where prompts are long.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from harness.engine import Role
from harness.latency import LatencyModel, ModelSpeed
from warehouse.comparison.contrasts import Comparison, Row
from warehouse.comparison.manifests import latency_mismatches
from warehouse.database import Connection, WarehouseError, rows
from warehouse.latency_fit import TimedSample, timed_samples

_SPEED = """
SELECT token.seconds AS token_seconds, first.seconds AS first_token_seconds
FROM token_time AS token JOIN first_token_time AS first USING (run_id, model)
WHERE run_id = $run_id AND model = $model AND purpose = 'chain'
"""


def modelled_speed_ups(connection: Connection, comparison: Comparison) -> dict[str, float]:
    """Return the speed-up over the target alone that the model expects, by run id, of runs of two models.

    A run is left out where its draft did not run alone under the same conditions, with one sample in flight, and where
    the warehouse has no calls of it.
    """
    of_regime = [row for row in comparison.rows if row.speed and row.run.summary.regime == "latency"]
    found: dict[str, float] = {}
    for row in of_regime:
        alone = next((other.run.run_id for other in of_regime if _is_draft_alone(other, row)), None)
        if alone is not None and row.run.summary.target:
            expected = _expected(connection, row, alone)
            found |= {} if expected is None else {row.run.run_id: expected}
    return found


def _expected(connection: Connection, row: Row, draft_alone: str) -> float | None:
    """Return the measured ratio, as many times larger as the run's samples took longer than the model says."""
    if row.speed is None or row.speed.ratio is None:
        return None
    alone: dict[Role, str] = {"target": row.speed.baseline, "draft": draft_alone}
    speeds = {role: speed for role, run_id in alone.items() if (speed := _speed(connection, run_id, role))}
    samples = _samples(connection, row.run.run_id)
    if not samples or not {work.model for sample in samples for work in sample.work} <= speeds.keys():
        return None
    model = LatencyModel(speeds)
    longer = statistics.fmean(
        math.log(sample.latency_seconds / model.sample_seconds(sample.work)) for sample in samples
    )
    return row.speed.ratio.estimate * math.exp(longer)


def _samples(connection: Connection, run_id: str) -> Sequence[TimedSample]:
    try:
        return [sample for sample in timed_samples(connection, run_id) if sample.work and sample.latency_seconds > 0]
    except WarehouseError:  # none was timed
        return ()


def _speed(connection: Connection, run_id: str, role: Role) -> ModelSpeed | None:
    """Return the speed of a model in a run of it alone; None where the engine does not say when first tokens came."""
    for row in rows(connection, _SPEED, {"run_id": run_id, "model": role}):
        if row["token_seconds"] is not None and row["first_token_seconds"] is not None:
            token, first = float(str(row["token_seconds"])), float(str(row["first_token_seconds"]))
            return ModelSpeed(call=max(0.0, first - token), output_token=token)
    return None


def _is_draft_alone(other: Row, row: Row) -> bool:
    summary, files = other.run.summary, "draft files"
    is_alone = summary.method == "vanilla" and summary.params.get("model") == "draft"
    is_same = other.run.manifest.values.get(files) == row.run.manifest.values.get(files)
    return is_alone and is_same and not latency_mismatches(other.run.manifest, row.run.manifest)
