"""A real server: `vllm serve`'s program with the bundled target."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import pytest_asyncio

from harness import prompts
from harness.engine import Sampling
from harness.engines.served.address import ServedModel, ServerAddress
from harness.engines.served.connection import Connection
from harness.engines.served.discovery import find
from harness.engines.served.served_engine import ServedEngine
from harness.engines.settings import EngineSettings
from harness.engines.transformers import TransformersEngine
from harness.engines.vllm import IN_CORE
from harness.problems import benchmarks
from harness.weights import models

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]
_START_SECONDS = 300.0
_VLLM = (
    "--dtype float32 --enforce-eager --max-model-len 2048 --block-size 32 --no-enable-chunked-prefill "
    "--max-num-batched-tokens 2048 --enable-prompt-tokens-details"
)
"""As the harness starts engines on a CPU (harness.engines.vllm)."""


def _answers(address: str) -> bool:
    try:
        with urlopen(f"{address}/models", timeout=5) as reply:
            return int(reply.status) == 200
    except (URLError, OSError):
        return False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedEngine]:
    """The bundled target on vLLM's server."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder, log = str(models.pair_folder("demo-target")), tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, *_VLLM.split()]
    command += ["--served-model-name", "demo-target", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--distributed-executor-backend", IN_CORE]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    address, ends_at = f"http://127.0.0.1:{port}/v1", time.monotonic() + _START_SECONDS
    try:
        while not _answers(address):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < ends_at, log.read_text()[-2000:]
            time.sleep(0.5)
        connection = Connection(ServerAddress.parse("--target", address), "target")
        found = await find(connection)
        await connection.close()
        served = ServedModel(address, found.kind, found.model)
        settings = EngineSettings(kind="served", max_context=1000, server=served)
        engine = await ServedEngine.start(folder, "target", settings)
        yield engine
        await engine.close()
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.needs_tool("vllm")
async def test_a_served_model_writes_judges_and_caches_as_in_process(target: ServedEngine) -> None:
    settings = EngineSettings(kind="transformers", dtype="float32", max_context=1000)
    own = await TransformersEngine.start(str(models.pair_folder("demo-target")), "target", settings)
    assert target.report["version"] != "unknown"
    for problem in benchmarks.load("demo")[:2]:
        ids, _ = prompts.opening(own.tokenizer, problem)
        sampling = Sampling(40, 0.0, stop=("\n\n",), mean_logprob=True)
        [expected], [got] = [(await engine.generate(ids, sampling)).completions for engine in (own, target)]
        assert (got.token_ids, got.finish) == (expected.token_ids, expected.finish)
        assert got.mean_logprob == pytest.approx(expected.mean_logprob, abs=1e-3)
        question = prompts.score_question(own.tokenizer)
        asked = [*ids, *got.token_ids, *question.ids]
        verdicts = [await engine.choose(asked, question.option_ids) for engine in (own, target)]
        assert verdicts[1].logprobs == pytest.approx(verdicts[0].logprobs, abs=1e-3)
    assert await target.reset_prefix_cache()
    first = await target.generate(ids, Sampling(12, 1.0, seed=5, n=3))
    again = await target.generate(ids, Sampling(12, 1.0, seed=6))
    assert again.completions[0].token_ids == first.completions[1].token_ids
    assert again.cached_tokens >= 32
    assert await target.reset_prefix_cache()
    assert (await target.generate(ids, Sampling(12, 1.0, seed=6))).cached_tokens == 0
