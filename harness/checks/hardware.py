"""GPUs with their memory, or the processor with the instructions that matter, and whether the weights fit."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from harness import environment
from harness.checks.check import Check, Question, failure, ok, warning
from harness.engine import Role

_FIELDS = "name,memory.total,memory.used,driver_version"
_SECONDS = 15.0
_FREE_GPU = 0.1
"""Share of a GPU's memory that may be used by others before it is worth a word."""


def check_devices(question: Question) -> Iterator[Check]:
    """What the engines would run on."""
    if environment.accelerator() == "gpu":
        yield from _gpus(question)
        return
    if not question.workers_run_here:
        yield ok("gpu", "none here, and none is needed here: --on-node looks at a node's")
        return
    asked = {key for key in ("gpus-per-node", "gres", "gpus") if question.on_node and (question.sbatch or {}).get(key)}
    if asked:
        yield failure(
            "gpu", f"none in this job although {', '.join(sorted(asked))} asked for some: see gres.conf, drivers"
        )
    yield warning("gpu", "none: engines run on the CPU, slowly") if not asked else _cpu()
    if not asked:
        yield _cpu()


def check_room(weights: Mapping[Role, int], question: Question) -> Check | None:
    """Bytes of weights against the memory they must fit in; None where nothing can be said."""
    if not weights or not question.workers_run_here:
        return None
    needed = sum(size / question.tensor_parallel.get(role, 1) for role, size in weights.items())
    if environment.accelerator() == "gpu":
        memories = [int(gpu["memory.total"].split()[0]) << 20 for gpu in environment.gpus()]
        room, where = min(memories, default=0), "one GPU"
    else:
        needed, room, where = sum(weights.values()), psutil.virtual_memory().available, "memory that is free"
    if not room:
        return None
    text = f"{needed / 2**30:.1f} GiB of weights, {room / 2**30:.1f} GiB of {where}"
    if needed < 0.9 * room:
        return ok("room for weights", text)
    return warning("room for weights", f"{text}: free memory, take smaller models, or raise --target-tensor-parallel")


def _gpus(question: Question) -> Iterator[Check]:
    rows = _nvidia_smi()
    if isinstance(rows, str):
        yield failure("gpu", f"a GPU is there, but nvidia-smi says nothing ({rows}): ask for the driver to be mended")
        return
    for index, (name, total, used, driver) in enumerate(rows):
        text = f"{name}, {total} MiB, driver {driver}"
        if total.isdigit() and used.isdigit() and int(used) > _FREE_GPU * int(total):
            yield warning(f"gpu {index}", f"{text}; {used} MiB are in use by others: nvidia-smi shows by whom")
        else:
            yield ok(f"gpu {index}", text)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = min(len(rows), len(visible.split(","))) if visible else len(rows)
    needed = max(question.tensor_parallel.values(), default=1)
    if question.workers_run_here and count < needed:
        yield failure("gpu", f"{count} of {needed} that --target-tensor-parallel or --draft-tensor-parallel asks for")


def _nvidia_smi() -> list[list[str]] | str:
    """Rows of `_FIELDS`, or why there are none."""
    if shutil.which("nvidia-smi") is None:
        return "not installed"
    command = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
    whole = [row for row in rows if len(row) == len(_FIELDS.split(","))]
    return whole if done.returncode == 0 and whole else f"status {done.returncode}, {done.stdout.strip()[:80]!r}"


def _cpu(information: Path = Path("/proc/cpuinfo")) -> Check:
    flags = _flags(information.read_text()) if information.is_file() else set()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{cores} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"
    if not flags:
        return warning("cpu", f"{text}; its instruction sets are unknown")
    found = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16") if name in flags]
    text = f"{text}, {' '.join(found) or 'no vector instructions that matter'}"
    if "asimd" not in flags and "avx2" not in flags:
        return failure("cpu", f"{text}: vLLM needs AVX2: take another machine, or --engine transformers")
    if not {"avx512_bf16", "amx_bf16", "bf16"} & flags:
        return warning("cpu", f"{text}: no bfloat16, so engines compute in float32 with twice the memory")
    return ok("cpu", text)


def _flags(cpuinfo: str) -> set[str]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return set(value.split())
    return set()
