"""Environment variables for the processes of an engine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib.metadata import entry_points

from harness import gpus
from harness.engines import caches, idle_workers, matrix_products, parent_watch
from harness.engines.settings import EngineSettings

START_SECONDS = 3600
"""How long a start may take. vLLM's own limit of 600 s is too short for a large model on a slow filesystem."""
_DEFAULTS: Mapping[str, str] = {
    "VLLM_ENGINE_READY_TIMEOUT_S": str(START_SECONDS),
    # All processes of an engine are on this node. vLLM would ask the routing table for the node's address, which
    # compute nodes without a route to the internet answer in ways that other processes cannot connect to.
    "VLLM_HOST_IP": "127.0.0.1",
    # FlashInfer cannot draw with a seed per request, which every request here has. Where it is on, a start compiles it
    # all the same, with a compiler that nodes often lack.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""What the user's own environment overrides."""
_FLOAT32_DOTS = "TRITON_F32_DEFAULT"
"""How Triton multiplies numbers in float32; by itself with 10 bits of the 23, also in attention, which in float32 is
Triton's."""


def variables(settings: EngineSettings) -> dict[str, str | None]:
    """Return the environment variables that vLLM reads while an engine starts; None stands for unset."""
    environment: dict[str, str | None] = {
        parent_watch.PARENT: str(os.getpid()),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        # On CUDA vLLM forks by default. A forked engine shares the worker's signal descriptor, so on Python 3.11 ending
        # the engine cancels the worker. It also takes plug-ins for loaded and never loads the parent watch, so it
        # would outlive a killed worker.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_CPU_KVCACHE_SPACE": None,  # would override kv_cache_bytes in both engines
        idle_workers.ENABLED: None,
        matrix_products.ENABLED: None,
        **{name: text for name, text in _DEFAULTS.items() if name not in os.environ},
        **caches.variables(),
    }
    if settings.device == "cpu":
        environment["VLLM_CPU_OMP_THREADS_BIND"] = settings.cpu_cores or "nobind"
        environment[idle_workers.ENABLED] = "1"
        environment["VLLM_USE_SPINLOOP_EXT"] = "0"  # would take a core for 0.1 s before each such wait
        if settings.enforce_eager:  # otherwise the first request waits many seconds for a compiler
            environment["TORCHDYNAMO_DISABLE"] = "1"
            environment[matrix_products.ENABLED] = "1"
    if settings.device == "gpu":
        # Numbers of cards are then nvidia-smi's; by itself CUDA counts from the fastest card.
        environment["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if settings.dtype == "float32":
            environment[_FLOAT32_DOTS] = os.environ.get(_FLOAT32_DOTS, "ieee")
        if (devices := settings.visible_devices) is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
            environment["HIP_VISIBLE_DEVICES"] = ",".join(devices)  # on ROCm vLLM insists that both say the same
        elif (devices := gpus.slurm_devices() or gpus.whole_names()) is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    if (allowed := os.environ.get("VLLM_PLUGINS")) is not None:
        environment["VLLM_PLUGINS"] = ",".join(filter(None, [allowed, parent_watch.ENTRY_POINT]))
    if parent_watch.ENTRY_POINT not in entry_points(group="vllm.general_plugins").names:
        warnings.warn(
            "this project is not installed (pip install): the processes of an engine whose core is killed end late",
            stacklevel=2,
        )
    return environment
