"""The engines of a run that has ended, opened again from its specification: for what is asked of its traces later."""

from __future__ import annotations

from dataclasses import replace

from harness.engine import Role
from harness.engines.pool import EnginePool, LeasedEngine
from harness.methods import Method
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, RunSpec
from jobs.work.engine_settings import engine_needs

_NO_SPECULATION = {"spec_decode": None, "spec_tokens": None, "spec_sampling": None}


async def reopen(
    pool: EnginePool, run: RunFolder, method: Method, spec: RunSpec | None = None, kv_bytes: int | None = None
) -> dict[Role, LeasedEngine]:
    """Open engines from a pool for the roles of a method, with the models, sizes and settings that a run names.

    The method need not be the run's own: engines are sized for it (context, requests in flight, candidates). `spec`
    replaces the run's specification. `kv_bytes`: the size of the KV caches on a CPU; give one number for all runs that
    shall share engines. They close with the pool. Raises ValueError where this machine cannot start them, and
    EngineDied where one does not start.
    """
    needs = engine_needs(run, spec or run.spec(), method, run.problems(), kv_bytes)
    return dict(await pool.lease(needs, run.logs_dir / "reopened"))


def without_speculation(spec: RunSpec) -> RunSpec:
    """Return a specification whose target neither speculates on tokens nor has an adapter: it only reads text."""
    engine: EngineSpec = replace(spec.engine, **_NO_SPECULATION)  # type: ignore[arg-type]
    return spec.without_adapter(engine=engine, speculator=None)
