"""Real servers: `vllm serve`'s program with the bundled target, and llama.cpp's server where it is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import pytest_asyncio

from harness import prompts
from harness.engine import Role, Sampling
from harness.engines.served.address import ServedModel, ServerAddress
from harness.engines.served.connection import Connection
from harness.engines.served.discovery import find
from harness.engines.served.served_engine import ServedEngine
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from harness.problems import benchmarks
from harness.weights import models
from tests.requirements import skip_by_design
from tools.smollm import gguf_file, smollm_folder

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]
_START_SECONDS = 300.0
_VLLM = (
    "--dtype float32 --enforce-eager --max-model-len 2048 --block-size 32 --no-enable-chunked-prefill "
    "--max-num-batched-tokens 2048 --enable-prompt-tokens-details"
)
"""As the harness starts engines on a CPU (harness.engines.vllm)."""


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a server until the block ends; yields its address once it answers."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    address, ends_at = f"http://127.0.0.1:{port}/v1", time.monotonic() + _START_SECONDS
    try:
        while not _answers(address):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < ends_at, log.read_text()[-2000:]
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/models", timeout=5) as reply:
            return int(reply.status) == 200
    except (URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def connected(address: str, role: Role, tokenizer: str) -> ServedEngine:
    connection = Connection(ServerAddress.parse(f"--{role}", address), role)
    found = await find(connection)
    await connection.close()
    served = ServedModel(address, found.kind, found.model)
    settings = EngineSettings(kind="served", max_context=1000, server=served)
    return await ServedEngine.start(tokenizer, role, settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedEngine]:
    """The bundled target on vLLM's server."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    port, folder = _free_port(), str(models.pair_folder("demo-target"))
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, *_VLLM.split()]
    command += ["--served-model-name", "demo-target", "--host", "127.0.0.1", "--port", str(port)]
    with server(command, port, tmp_path_factory.mktemp("server") / "log", environment) as address:
        engine = await connected(address, "target", folder)
        yield engine
        await engine.close()


async def same_as_in_process(served: ServedEngine, own: TransformersEngine, nats: float) -> None:
    """Compare greedy texts and verdicts of a served model with those of the same weights in this process."""
    for problem in benchmarks.load("demo")[:3]:
        ids, _ = prompts.opening(own.tokenizer, problem)
        sampling = Sampling(40, 0.0, stop=("\n\n",), mean_logprob=True)
        [expected], [got] = [(await engine.generate(ids, sampling)).completions for engine in (own, served)]
        assert (got.token_ids, got.finish) == (expected.token_ids, expected.finish)
        assert got.mean_logprob == pytest.approx(expected.mean_logprob, abs=nats)
        question = prompts.score_question(own.tokenizer)
        asked = [*ids, *got.token_ids, *question.ids]
        verdicts = [await engine.choose(asked, question.option_ids) for engine in (own, served)]
        assert verdicts[1].logprobs == pytest.approx(verdicts[0].logprobs, abs=nats)
        assert verdicts[1].best == verdicts[0].best


@pytest.mark.needs_tool("vllm")
async def test_a_served_model_writes_and_judges_as_in_process(target: ServedEngine) -> None:
    settings = EngineSettings(kind="transformers", dtype="float32", max_context=1000)
    own = await TransformersEngine.start(str(models.pair_folder("demo-target")), "target", settings)
    await same_as_in_process(target, own, 1e-3)
    assert target.report["version"] != "unknown"


@pytest.mark.needs_tool("vllm")
async def test_seeds_and_cached_tokens_are_those_of_an_engine(target: ServedEngine) -> None:
    ids, _ = prompts.opening(target.tokenizer, benchmarks.load("demo")[0])
    assert await target.reset_prefix_cache()
    first = await target.generate(ids, Sampling(12, 1.0, seed=5, n=3))
    again = await target.generate(ids, Sampling(12, 1.0, seed=6))
    assert again.completions[0].token_ids == first.completions[1].token_ids
    assert again.cached_tokens >= 32
    assert await target.reset_prefix_cache()
    assert (await target.generate(ids, Sampling(12, 1.0, seed=6))).cached_tokens == 0


@pytest.mark.needs_tool("smollm")
async def test_llama_cpps_server_writes_and_judges_like_the_same_weights_in_process(tmp_path: Path) -> None:
    if shutil.which("llama-server") is None:
        skip_by_design("no llama-server: building llama.cpp takes ten minutes")
    port = _free_port()
    command = [str(shutil.which("llama-server")), "-m", str(gguf_file()), "--port", str(port), "-c", "4096"]
    command += ["--host", "127.0.0.1", "-np", "2"]
    settings = EngineSettings(kind="transformers", dtype="float32", max_context=1000)
    with server(command, port, tmp_path / "log", {}) as address:
        served = await connected(address, "target", str(smollm_folder()))
        own = await TransformersEngine.start(str(smollm_folder()), "target", settings)
        problem = benchmarks.load("demo")[0]
        ids, _ = prompts.opening(own.tokenizer, problem)
        question = prompts.score_question(own.tokenizer)
        asked = [*ids, *question.ids]
        verdicts = [await engine.choose(asked, question.option_ids) for engine in (own, served)]
        # llama.cpp computes with 4-bit weights as they are, transformers with their bfloat16 copies.
        assert verdicts[1].probabilities == pytest.approx(verdicts[0].probabilities, abs=0.1)
        sampling = Sampling(24, 0.7, 0.95, ("\n",), seed=3, mean_logprob=True)
        one, two = [(await served.generate(ids, sampling)).completions[0] for _ in range(2)]
        assert one.token_ids == two.token_ids
        assert one.mean_logprob is not None
        assert served.tokenizer.decode(one.token_ids) == one.text
        await served.close()
