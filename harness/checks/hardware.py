"""Checks of GPUs with their memory, of the CPU with its instruction sets, and of memory for the weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from harness import environment, gpus
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.engine import Role

_QUERIES: Mapping[str, Callable[[], object]] = {"nvidia-smi": gpus.query_nvidia, "rocm-smi": gpus.query_amd}
"""The drivers' tools, and what asks them."""
_USED_BY_OTHERS = 0.1
"""Share of a GPU's memory that others may use without a warning."""


def check_devices(question: Question) -> Iterator[Check]:
    """Check the devices that the engines would run on."""
    if environment.accelerator() == "gpu":
        yield from _gpus(question)
        return
    if not question.workers_run_here:
        yield ok("gpu", "none here, and none is needed here: --on-node checks a node's")
        return
    sbatch = question.sbatch or {}
    gpu_options = [key for key in ("gpus", "gpus-per-node", "gres") if question.on_node and sbatch.get(key)]
    if gpu_options:
        yield failure(
            "gpu", f"none in this job despite {', '.join(gpu_options)}{_failed_tools()}: check gres.conf and drivers"
        )
    else:
        yield warning("gpu", f"none{_failed_tools()}: engines run on the CPU, slowly")
    yield _cpu()


def check_room(weights: Mapping[Role, int], question: Question) -> Check | None:
    """Check the bytes of weights, by role, against the free memory of a machine without GPUs; None for others.

    harness.checks.sizes plans the memory of GPUs.
    """
    if not weights or not question.workers_run_here or environment.accelerator() == "gpu":
        return None
    needed, room = sum(weights.values()), psutil.virtual_memory().available
    text = f"{needed / 2**30:.1f} GiB of weights, {room / 2**30:.1f} GiB of memory that is free"
    if needed < 0.9 * room:
        return ok("room for weights", text)
    return warning("room for weights", f"{text}: free memory or take smaller models")


def _gpus(question: Question) -> Iterator[Check]:
    cards = gpus.visible_gpus()
    if not cards:
        yield failure("gpu", f"there is a GPU, but {_why_unknown()}: have the driver repaired")
        return
    for card in cards:
        memory = f"{card.memory_bytes >> 20} MiB" if card.memory_bytes else "memory unknown"
        text = f"{card.name}, {memory}, driver {card.driver or 'unknown'}"
        if card.used_bytes > _USED_BY_OTHERS * card.memory_bytes > 0:
            used = card.used_bytes >> 20
            yield warning(f"gpu {card.index}", f"{text}; {used} MiB are in use by others: see nvidia-smi")
        else:
            yield ok(f"gpu {card.index}", text)
    # Where cards are named, the plan of their memory says which are missing.
    needed = 1 if any(question.cards.values()) else max(question.tensor_parallel.values(), default=1)
    if question.workers_run_here and len(cards) < needed:
        text = f"{len(cards)} of the {needed} that --target-tensor-parallel or --draft-tensor-parallel needs"
        yield failure("gpu", text)


def _why_unknown() -> str:
    """Return why no card is listed where there is one."""
    reasons = [_failure(query) for query in _QUERIES.values()]
    if None in reasons:
        return "CUDA_VISIBLE_DEVICES (ROCm: ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES) names none that is listed"
    return "; ".join(reason for reason in reasons if reason)


def _failed_tools() -> str:
    """Return why the drivers' tools that are installed list no card, as the continuation of a sentence."""
    failures = [_failure(query) for tool, query in _QUERIES.items() if shutil.which(tool) is not None]
    reasons = "; ".join(failure for failure in failures if failure)
    return f", and {reasons}" if reasons else ""


def _failure(query: Callable[[], object]) -> str | None:
    try:
        query()
    except gpus.QueryFailed as failed:
        return str(failed)
    return None


def _cpu(information: Path = Path("/proc/cpuinfo")) -> Check:
    flags = _flags(information.read_text()) if information.is_file() else set()
    text = f"{environment.usable_cores()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"
    if not flags:
        return warning("cpu", f"{text}; its instruction sets are unknown")
    relevant = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16") if name in flags]
    text = f"{text}, {' '.join(relevant) or 'no relevant vector instructions'}"
    if "asimd" not in flags and "avx2" not in flags:
        return failure("cpu", f"{text}: vLLM needs AVX2: use another machine, or --engine transformers")
    if not {"avx512_bf16", "amx_bf16", "bf16"} & flags:
        return warning("cpu", f"{text}: no bfloat16, so engines compute in float32 with twice the memory")
    return ok("cpu", text)


def _flags(cpuinfo: str) -> set[str]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return set(value.split())
    return set()
