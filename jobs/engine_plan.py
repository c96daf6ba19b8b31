"""How many engines a list of launches starts, as far as it can be told before a node is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.engines.pool import EngineNeed, in_engine_order, num_starts
from harness.engines.settings import EngineSettings
from harness.methods import build
from harness.settings.launch_settings import Launch


def planned_starts(launches: Sequence[Launch]) -> tuple[int, int]:
    """Return the starts of engines on one GPU worker that runs all launches: each by itself, and with shared engines.

    Two launches are taken to share an engine where its model and everything that its settings depend on on a GPU are
    equal; a node knows better (harness.engines.pool).
    """
    needs = [list(_needs(launch)) for launch in launches]
    ordered = [needs[number] for number in in_engine_order(needs)]
    return sum(map(len, needs)), num_starts(ordered)


def _needs(launch: Launch) -> Iterator[EngineNeed]:
    method = build(launch.method, dict(launch.parameters))
    models = launch.models
    sequences = {
        role: launch.concurrency
        * (method.parallel if role == "draft" or len(method.roles) == 1 else method.target_parallel)
        for role in method.roles
    }
    # An engine's share of the memory, and so its size, depends on the engines beside it.
    beside = [(models[role], sequences[role]) for role in method.roles]
    options: list[object] = [
        (launch.dtype_of(role), own.tensor_parallel, own.memory, own.gpus) for role, own in launch.roles.items()
    ]
    options += [launch.spec_decode, launch.spec_model, launch.spec_tokens, launch.spec_sampling]
    options += [launch.target.adapter, method.reads_logprobs if launch.logprobs is None else launch.logprobs]
    for role in method.roles:
        yield EngineNeed(role, repr((models[role], beside, options)), None, EngineSettings(device="gpu"))
