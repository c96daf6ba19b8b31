"""Engine processes are spawned where vLLM would fork them, as it does on CUDA, and end with their worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.engine import Role
from harness.engines.settings import EngineSettings
from harness.engines.variables import variables
from tests.harness.cards import card, put_nvidia_smi

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
needs_vllm = pytest.mark.needs_tool("vllm")

_AS_ON_CUDA = f"""
# vLLM's platform for CPUs sets the start method itself, its platform for CUDA leaves it as it finds it: as here.
import os
from vllm.platforms.cpu import CpuPlatform

set_up = CpuPlatform.check_and_update_config.__func__

def as_on_cuda(cls, vllm_config):
    found = os.environ.get("{METHOD}")
    set_up(cls, vllm_config)
    del os.environ["{METHOD}"]
    if found is not None:
        os.environ["{METHOD}"] = found

CpuPlatform.check_and_update_config = classmethod(as_on_cuda)
"""
_LAUNCH = """
if __name__ == "__main__":
    import sys
    from harness.launch import main

    main(sys.argv[1:])
"""
_WORKER = """
import asyncio, dataclasses, sys
from pathlib import Path
from harness.engines.settings import pair_settings
from harness.engines.vllm import VLLMEngine

async def main():
    settings = pair_settings("vllm", ("draft",), dtype="float32")["draft"]
    small = dataclasses.replace(settings, kv_cache_bytes=32 << 20, enforce_eager=True)
    engine = await VLLMEngine.start(sys.argv[1], "draft", small, Path(sys.argv[2]))
    print(*(process.pid for process in engine.process.processes.find()), flush=True)
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("outside", [None, "fork"])
def test_the_start_method_is_spawn_in_any_environment(monkeypatch: pytest.MonkeyPatch, outside: str | None) -> None:
    if outside is not None:
        monkeypatch.setenv(METHOD, outside)
    assert variables(EngineSettings(kind="vllm", device="gpu"))[METHOD] == "spawn"


def test_an_engine_sees_only_the_cards_that_slurm_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    gpu = EngineSettings(kind="vllm", device="gpu")
    assert "CUDA_VISIBLE_DEVICES" not in variables(gpu)
    monkeypatch.setenv("SLURM_JOB_GPUS", "6,7")
    devices = (variables(gpu)["CUDA_VISIBLE_DEVICES"] or "").split(",")
    assert [device[:12] for device in devices] == ["GPU-00000006", "GPU-00000007"]
    assert "CUDA_VISIBLE_DEVICES" not in variables(EngineSettings(kind="vllm", device="cpu"))


def test_float32_is_calculated_with_all_bits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = EngineSettings(kind="vllm", device="gpu", dtype="float32")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in variables(EngineSettings(kind="vllm", device="gpu"))
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32x3")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "tf32x3"


@pytest.mark.parametrize(
    ("visible", "given"),
    [
        ("GPU-00000006,GPU-00000001-aaaa", "6,1"),
        ("GPU-00000006-aaaa-bbbb-cccc-dddddddddddd", None),
        ("3,5", None),
        ("GPU-ffffffff", None),
    ],
)
def test_an_engine_gets_the_whole_names_of_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, given: str | None
) -> None:
    put_nvidia_smi(tmp_path, monkeypatch, [card(i) for i in range(8)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    chosen = variables(EngineSettings(kind="vllm", device="gpu")).get("CUDA_VISIBLE_DEVICES")
    assert chosen == (given and ",".join(card(int(number))["uuid"] for number in given.split(",")))


@pytest.mark.vllm
@needs_vllm
def test_a_run_ends_well_where_vllm_would_fork(tmp_path: Path) -> None:
    script = tmp_path / "launch.py"
    script.write_text(_AS_ON_CUDA + _LAUNCH)
    flags = ["--method", "speccot", "--dataset", "demo", "--limit", "2", "--samples", "1", "--cluster", "debug"]
    flags += ["--draft", "demo-draft", "--target", "demo-target", "--token-budget", "128", "--max-context", "1024"]
    done = subprocess.run(
        [sys.executable, str(script), *flags, "--output", str(tmp_path / "runs")],
        env={name: text for name, text in os.environ.items() if name != METHOD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "pass@1" in done.stdout


@pytest.mark.vllm
@needs_vllm
@pytest.mark.parametrize("platform", ["", _AS_ON_CUDA], ids=["here", "as on CUDA"])
def test_a_killed_worker_leaves_no_engine(tiny_models: dict[Role, Path], tmp_path: Path, platform: str) -> None:
    script = tmp_path / "worker.py"
    script.write_text(platform + _WORKER)
    worker = subprocess.Popen(
        [sys.executable, str(script), str(tiny_models["draft"]), str(tmp_path / "engine.log")],
        env={name: text for name, text in os.environ.items() if name != METHOD},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        assert worker.stdout is not None
        engine_pids = worker.stdout.readline().split()
        assert engine_pids, (tmp_path / "engine.log").read_text()[-2000:]
        # Every process below the worker, whatever its command line says.
        engine = psutil.Process(worker.pid).children(recursive=True)
        assert {process.pid for process in engine} >= {int(pid) for pid in engine_pids}
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    _, left = psutil.wait_procs(engine, timeout=10)
    for process in left:
        process.kill()
    assert not left
