"""The target's log-probabilities of steps in a run folder: `target_logprobs/*.parquet`, written beside the traces.

Every write is a file of its own (jobs.run.trace_files.TARGET_LOGPROBS), so that workers never wait for each other, and
what exists never changes. A sample that two files have counts once: the warehouse takes the file that was written
first. The folder is the request, too: the workers of a run that has it score the samples that they finish.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from harness.chain import chain_scores
from jobs.run import own_files, trace_files
from jobs.run.files import FileDamaged, WrongFormat, files_in, say_once
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec, RunSpec

SCORER_KEY = "scorer"
"""Metadata of a file: the JSON of its `Scorer`."""


class OtherTarget(ValueError):
    """The run has log-probabilities of another target, by another definition, or in another format; one line."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """What the log-probabilities of a file are of."""

    target: str
    """Name of the model."""
    fingerprint: str
    """Content hash, or hub id and revision, of the model."""
    engine: str
    """The engine that read the chains; numbers of two engines differ by rounding."""
    dtype: str
    version: int = chain_scores.LIKELIHOOD_VERSION
    temperature: float = 1.0
    """The distribution is the model's own, before any truncation, whatever the run's samples were drawn by."""


def scorer_of(target: ModelSpec, spec: RunSpec) -> Scorer:
    """Return the scorer that a target is with a run's engine."""
    return Scorer(target.name, target.fingerprint, spec.engine.kind, target.dtype)


def write(run: RunFolder, scorer: Scorer, rows: Sequence[Mapping[str, str | int | float | None]]) -> None:
    """Write a file of rows with the columns of TARGET_LOGPROBS."""
    written_at = time.time()
    stamp = datetime.fromtimestamp(written_at, UTC).strftime("%Y%m%dT%H%M%S.%f")
    path = run.target_logprobs_dir / f"{stamp}-{socket.gethostname()}-{os.getpid()}.parquet"
    metadata = {trace_files.RUN_KEY: run.spec().run_id, SCORER_KEY: json.dumps(asdict(scorer))}
    trace_files.write_table(path, trace_files.TARGET_LOGPROBS, rows, metadata)


def scored_ids(run: RunFolder, scorer: Scorer | None) -> set[str]:
    """Return the ids of the samples that are scored, by this scorer; None: by any, of a run without a target.

    A file that is damaged is named, and its samples are not. Raises OtherTarget where the run was scored by another
    target, by another version of the definition, or in another format.
    """
    ids, sample_ids = own_files.run_ids(run), set[str]()
    for path in files_in(run.target_logprobs_dir, ".parquet"):
        try:
            rows = own_files.rows(path, ids, ["sample_id"])
            other = json.loads(trace_files.read_metadata(path)[SCORER_KEY])
            theirs, name, version = other["fingerprint"], str(other["target"]), other["version"]
        except WrongFormat as error:
            raise OtherTarget(str(error)) from error
        except FileDamaged as error:
            say_once(f"{error}; what it held is scored again")
            continue
        except (KeyError, TypeError, ValueError) as error:
            say_once(f"{path} does not say what scored it ({type(error).__name__}); what it held is scored again")
            continue
        if scorer is not None and (theirs, version) != (scorer.fingerprint, scorer.version):
            raise OtherTarget(
                f"{run.path.name} has log-probabilities of {name} (version {version}), not of {scorer.target} "
                f"(version {scorer.version}): move {run.target_logprobs_dir} away to score it anew"
            )
        sample_ids.update(row["sample_id"] for row in rows)
    return sample_ids
