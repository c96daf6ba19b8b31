"""Environment variables that an engine's processes are started with."""

from __future__ import annotations

import os
import warnings
from importlib.metadata import entry_points

from harness.engines import parent_watch
from harness.engines.settings import EngineSettings


def variables(settings: EngineSettings) -> dict[str, str | None]:
    """What vLLM reads from the environment while one engine starts; None is unset."""
    wanted: dict[str, str | None] = {
        parent_watch.PARENT: str(os.getpid()),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        # On CUDA vLLM forks by default. A forked engine shares the worker's signal descriptor, so on Python 3.11 ending
        # the engine cancels the worker; and it takes plug-ins for loaded, so nothing ends it when its worker is killed.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_CPU_KVCACHE_SPACE": None,  # would overrule kv_cache_bytes in both engines
    }
    if settings.device == "cpu":
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = settings.cpu_cores or "nobind"
        if settings.enforce_eager:  # else the first request waits many seconds for a compiler, for one tiny function
            wanted["TORCHDYNAMO_DISABLE"] = "1"
    if (allowed := os.environ.get("VLLM_PLUGINS")) is not None:
        wanted["VLLM_PLUGINS"] = ",".join(filter(None, [allowed, parent_watch.ENTRY_POINT]))
    if parent_watch.ENTRY_POINT not in entry_points(group="vllm.general_plugins").names:
        warnings.warn(
            "this project is not installed here (pip install): the engines of a killed worker will not end",
            stacklevel=2,
        )
    return wanted
