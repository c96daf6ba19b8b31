"""The record of a worker's attempt: machine, engines and code."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from harness import environment, gpus
from harness.engine import Role
from harness.engines import registry
from harness.engines.pool import LeasedEngine
from harness.engines.settings import EngineSettings
from harness.prompts import THINK_END
from harness.weights.tokenizer import THINK_TAGS
from jobs.run import codes
from jobs.run.folder import RunFolder
from jobs.run.spec import UNKNOWN_SERVER, Attempt
from jobs.run.submissions import attempt_name
from jobs.submission import code_archive


def new_attempt(
    run: RunFolder,
    shard: int,
    engines: Mapping[Role, LeasedEngine],
    other_codes: Sequence[str] = (),
    load: float | None = None,
) -> Attempt:
    """Return the record of an attempt that starts now; `shard` is the first of the attempt's shards.

    `load`: the machine's load before the engines were opened. `other_codes`: hashes of the other code versions that may
    work on the run, from `jobs.run.codes.claim`. The start of an engine counts towards `startup_seconds` of the first
    attempt that uses it; `engine_start` is recorded in every attempt.
    """
    settings = {role: engine.settings for role, engine in engines.items()}
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
    own = {role: engine for role, engine in settings.items() if registry.capabilities(engine.kind).runs_here}
    cards = gpus.held_gpus((engine.visible_devices, engine.tensor_parallel) for engine in own.values())
    devices = [cards[0].name if cards else environment.accelerator()] if own else []
    devices += [UNKNOWN_SERVER] if len(own) < len(settings) else []
    versions = {**environment.versions()}
    for role, engine in engines.items():
        if report := getattr(engine.inner, "report", None):
            versions[f"{role} server"] = f"{report['kind']} {report['version']}"
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    return Attempt(
        attempt_id=attempt_name(f"{stamp}-{socket.gethostname()}-{os.getpid()}", run.assignment(), shard),
        run_id=run.spec().run_id,
        shard=shard,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        started_at=now,
        git_commit=environment.git_commit(),
        slurm_job_id=job,
        device=" and ".join(devices),
        num_devices=len(cards) or _num_devices(own),
        versions=versions,
        hardware=environment.hardware(),
        engines={role: _engine(engine, settings[role]) for role, engine in engines.items()}
        | {"startup_seconds": sum(engine.start.seconds for engine in engines.values() if not engine.is_warm)},
        code_hash=codes.code_of(run).hash,
        code_archive=code_archive.digest_here(),
        other_codes=tuple(other_codes),
        load_at_start=load,
    )


def _engine(engine: LeasedEngine, settings: EngineSettings) -> dict[str, object]:
    """Return an attempt's record of an engine; on GPUs, it includes the tensor-parallel size and memory share."""
    ids, tags = engine.tokenizer.encode(THINK_END), getattr(engine.tokenizer, "tags", THINK_TAGS)
    told = {
        "draft_sample_method": getattr(engine.inner, "draft_sample_method", None),
        "model_runner": getattr(engine.inner, "model_runner", None),
        "server": getattr(engine.inner, "report", None),
        "prompt_date": getattr(engine.tokenizer, "prompt_date", None),
        "visible_devices": settings.visible_devices or None,
        "thinking_tags": None if tags == THINK_TAGS else ",".join(tags),
    }
    if settings.device == "gpu":
        cards = gpus.held_gpus([(settings.visible_devices, settings.tensor_parallel)])
        told |= {
            "tensor_parallel": settings.tensor_parallel,
            "memory_share": settings.memory_fraction,
            "cards": [card.index for card in cards],
        }
    return {
        "kv_tokens": engine.kv_tokens,
        "context_tokens": engine.context_tokens,
        "think_end_id": next(iter(ids)) if len(ids) == 1 else None,
        "mean_logprobs": engine.need.mean_logprobs,
        "engine_start": engine.start.start_id,
        "engine_start_seconds": engine.start.seconds,
        **{name: value for name, value in told.items() if value is not None},
    }


def _num_devices(settings: Mapping[Role, EngineSettings]) -> int:
    """Return the number of GPUs in the engines' settings, for machines without a list of GPUs; 1 on a CPU."""
    placed = {role: engine.visible_devices for role, engine in settings.items()}
    named = {name for names in placed.values() for name in names or ()}
    shared = max((engine.tensor_parallel for role, engine in settings.items() if placed[role] is None), default=0)
    is_gpu = any(engine.device == "gpu" for engine in settings.values())
    return max(1, len(named), shared) if is_gpu else 1
