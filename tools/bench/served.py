"""Compare a model on a server with the same model in process: `python -m tools.bench.served --help`.

Both handle the same requests alternately in one session, so other load on the machine affects both equally.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click

from harness import prompts
from harness.cli.command import OneLineErrors
from harness.engine import Engine, EngineDied, Sampling
from harness.engines import registry
from harness.engines.served import discovery
from harness.engines.served.address import ServedModel, ServerAddress
from harness.engines.served.served_engine import ServedEngine
from harness.engines.settings import EngineSettings, pair_settings
from harness.problems import benchmarks
from harness.problems.problem import Problem
from harness.weights import models

_CONTEXT_TOKENS = 1024
_WRITTEN_TOKENS = 24
_Ask = Callable[[Engine, Problem, int], Awaitable[None]]


@click.command(cls=OneLineErrors)
@click.option("--server", required=True, metavar="URL", help="Address of the server, http://HOST:PORT/v1.")
@click.option("--model", required=True, help="The same model for this process: a known name, a hub id or a folder.")
@click.option(
    "--engine",
    type=click.Choice(["vllm", "transformers"]),
    default="vllm",
    show_default=True,
    help="Engine in this process.",
)
@click.option("--dtype", default="float32", show_default=True, help="Data type in which the server computes.")
@click.option(
    "--rounds", type=click.IntRange(min=3), default=30, show_default=True, help="Number of requests of each kind."
)
def main(server: str, model: str, engine: str, dtype: str, rounds: int) -> None:
    """Print the median seconds of a verdict and of a step of 24 tokens, on the server and in this process, and their
    ratio.
    """
    try:
        address = ServerAddress.parse("--server", server)
        found = discovery.find_here(address, "target", None)
        source = models.resolve(model)
    except (EngineDied, ValueError, models.ModelUnavailable) as error:
        raise click.UsageError(str(error)) from error
    served = EngineSettings(
        kind="served", max_context=_CONTEXT_TOKENS, server=ServedModel(address.root, found.kind, found.model)
    )
    kind = "vllm" if engine == "vllm" else "transformers"
    own = pair_settings(kind, ("target",), dtype=dtype, max_context=_CONTEXT_TOKENS, concurrency=1)["target"]
    own = replace(own, cpu_cores=None)  # like the server, whose threads are not bound either
    asyncio.run(_measure(source.path_or_hub_id, source.revision, served, own, rounds))


async def _measure(path: str, revision: str | None, served: EngineSettings, own: EngineSettings, rounds: int) -> None:
    remote = await ServedEngine.start(path, "target", served, revision=revision)
    with tempfile.TemporaryDirectory() as folder:
        local = await registry.start(_Source(path, revision), "target", own, Path(folder) / "log")
        try:
            for name, ask in (("verdict", _verdict), ("step of 24 tokens", _step)):
                times = await _in_turn([local, remote], ask, rounds)
                in_process, by_server = (median(t) for t in times)
                click.echo(
                    f"{name:18} in process {in_process:.4f} s, on the server {by_server:.4f} s, "
                    f"ratio {by_server / in_process:.2f} ({rounds} requests each, medians)"
                )
        finally:
            await local.close()
            await remote.close()


@dataclass(frozen=True)
class _Source:
    path: str
    revision: str | None


async def _in_turn(engines: Sequence[Engine], ask: _Ask, rounds: int) -> list[list[float]]:
    problems = benchmarks.load("demo")
    times: list[list[float]] = [[] for _ in engines]
    for number in range(rounds + 1):
        for own, engine in zip(times, engines, strict=True):
            begun = time.monotonic()
            await ask(engine, problems[number % len(problems)], number)
            own.append(time.monotonic() - begun)
    return [own[1:] for own in times]


async def _verdict(engine: Engine, problem: Problem, number: int) -> None:
    ids, _ = prompts.opening(engine.tokenizer, problem)
    question = prompts.score_question(engine.tokenizer)
    await engine.choose([*ids, *question.ids], question.option_ids)


async def _step(engine: Engine, problem: Problem, number: int) -> None:
    ids, _ = prompts.opening(engine.tokenizer, problem)
    await engine.generate(ids, Sampling(_WRITTEN_TOKENS, 0.6, 0.95, seed=number))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.served")
