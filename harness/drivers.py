"""Which of vLLM's builds for CUDA a driver serves, from the table in harness/data/vllm_builds.toml.

Only the standard library is imported, because harness.installation runs before anything is installed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).parent / "data" / "vllm_builds.toml"
MIN_COMPUTE_CAPABILITY = (7, 5)
"""Of vLLM's builds for CUDA, according to its documentation on installation."""


@dataclass(frozen=True)
class Build:
    """A release of vLLM on PyPI, and what it was built with."""

    vllm: str
    torch: str
    cuda: str
    min_driver: int
    """First number of the oldest driver that it runs with."""


@cache
def builds() -> tuple[Build, ...]:
    """Return the supported builds, newest first."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    minimum = table["minimum_driver"]
    return tuple(
        Build(row["vllm"], row["torch"], row["cuda"], minimum[row["cuda"].partition(".")[0]]) for row in table["builds"]
    )


def newest_for(driver: str) -> Build | None:
    """Return the newest supported build that runs with a driver, such as `570.86.15`; None if none does."""
    return next((build for build in builds() if build.min_driver <= _number(driver)), None)


def of_version(vllm: str) -> Build | None:
    """Return the build of an installed version of vLLM; None if the table lacks it."""
    return next((build for build in builds() if build.vllm == vllm.partition("+")[0]), None)


def newest_cuda(driver: str) -> str:
    """Return the newest major version of CUDA that a driver runs, such as `12`, in words for older drivers."""
    minimum = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["minimum_driver"]
    served = [int(cuda) for cuda, oldest in minimum.items() if oldest <= _number(driver)]
    return str(max(served)) if served else "11 or earlier"


def remedies(driver: str) -> str:
    """Return what can be done with a driver that no supported build runs with, in one line."""
    newest, oldest = builds()[0], builds()[-1]
    served, needed = newest_cuda(driver), min(build.min_driver for build in builds())
    package = f"cuda-compat-{newest.cuda.replace('.', '-')}"
    index = f"https://wheels.vllm.ai/{newest.vllm}/cu129"
    cu129 = f"; or look for a build for CUDA 12.9 in {index}" if served == "12" else ""
    return (
        f"driver {driver} runs CUDA {served}; vLLM {oldest.vllm} to {newest.vllm} on PyPI are built for CUDA "
        f"{newest.cuda}, which needs driver {needed} or later. Have the driver updated; or, with data-center cards, "
        f"install NVIDIA's {package} and set VLLM_ENABLE_CUDA_COMPATIBILITY=1, or run in the container "
        f"vllm/vllm-openai:v{newest.vllm} with that variable{cu129}"
    )


def _number(driver: str) -> int:
    """Return the first number of a driver's version. Raises ValueError."""
    first = driver.partition(".")[0]
    if not first.isdecimal():
        raise ValueError(f"a driver's version starts with a number, as 570.86.15 does, not {driver!r}")
    return int(first)
