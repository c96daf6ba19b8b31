"""List the GPUs of this node and those usable by this process, and check whether their driver supports vLLM.

GPUs are listed by nvidia-smi, without loading a GPU library. Visible GPUs follow from CUDA_VISIBLE_DEVICES, which Slurm
sets in its jobs. Only the standard library is imported, because harness.installation runs before anything is installed.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

_TIMEOUT_SECONDS = 30.0
"""Time limit of nvidia-smi. Without a persistence daemon it initializes every GPU, which takes seconds per GPU."""
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "compute_mode", "mig.mode.current")
_MIG_SLICE = re.compile(r"\s+MIG\s+(?P<profile>\S*?(?P<gigabytes>\d+)gb\S*)\s.*\(UUID:\s*(?P<uuid>\S+)\)")


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG slice of one."""

    index: int
    """Index on the node in PCI order, as in nvidia-smi; a slice has its GPU's index."""
    uuid: str | None
    """UUID, or MIG id of a slice, as used in CUDA_VISIBLE_DEVICES; None if unknown."""
    name: str
    memory_bytes: int
    """0 if unknown, as for memory shared by GPU and CPU."""
    used_bytes: int
    """Memory in use by all processes; 0 if unknown, as for a slice."""
    driver: str | None
    is_exclusive: bool = False
    """Whether the GPU accepts only one process at a time (compute mode Exclusive_Process), as on many clusters."""

    @property
    def device(self) -> str:
        """The value of CUDA_VISIBLE_DEVICES that makes only this GPU visible."""
        return self.uuid or str(self.index)


def node_gpus() -> list[Gpu]:
    """Return all GPUs listed by nvidia-smi, with MIG slices in place of divided GPUs; empty if nvidia-smi fails."""
    text = _run(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    rows = [row for row in rows if len(row) == len(_FIELDS) and row[0].isdecimal()]
    cards = []
    for index, uuid, name, *memory, driver, mode, _ in rows:
        total, used = (int(text) << 20 if text.isdecimal() else 0 for text in memory)  # "[N/A]" for shared memory
        known = driver if driver[:1].isdecimal() else None
        own = uuid if uuid.startswith("GPU-") else None
        cards.append(Gpu(int(index), own, name, total, used, known, mode == "Exclusive_Process"))
    divided = {card.index for card, row in zip(cards, rows, strict=True) if row[-1] == "Enabled"}
    return list(_with_slices(cards, divided)) if divided else cards


def _with_slices(cards: list[Gpu], divided: set[int]) -> Iterator[Gpu]:
    slices: dict[int, list[Gpu]] = {}
    by_index = {card.index: card for card in cards}
    card: Gpu | None = None
    for line in _run("-L").splitlines():
        if heading := re.match(r"GPU (\d+):", line):
            card = by_index.get(int(heading[1]))
        elif card is not None and (found := _MIG_SLICE.match(line)):
            size = int(found["gigabytes"]) * 10**9  # the profile's size; slices are slightly larger
            part = replace(card, uuid=found["uuid"], name=f"{card.name} MIG {found['profile']}", memory_bytes=size)
            slices.setdefault(card.index, []).append(replace(part, used_bytes=0))
    for each in cards:
        yield from slices.get(each.index, []) if each.index in divided else [each]


def output_of(*command: str, seconds: float) -> str:
    """Return a command's output; empty if the command is missing, fails or times out."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


_run = partial(output_of, "nvidia-smi", seconds=_TIMEOUT_SECONDS)


_CUDA = "CUDA_VISIBLE_DEVICES"
_DEVICES = Path("/dev")


def visible_gpus() -> list[Gpu]:
    """Return the GPUs usable by this process, in CUDA's order."""
    cards, names = node_gpus(), _visible()
    if names is not None:
        cards = select(names, cards)
    # CUDA shows a process only the first MIG slice.
    slices = [card for card in cards if (card.uuid or "").startswith("MIG-")]
    return slices[:1] if slices and slices[0] is cards[0] else [card for card in cards if card not in slices]


def select(names: Iterable[str], cards: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs with these indices, UUIDs, UUID prefixes or MIG ids, in the order of `names`.

    As in CUDA, the list ends at the first name without a GPU.
    """
    chosen: list[Gpu] = []
    for name in names:
        if name.isdecimal():
            found = [card for card in cards if card.index == int(name)]
        else:
            found = [card for card in cards if name and card.uuid is not None and card.uuid.startswith(name)]
        if not found:
            break
        if found[0] not in chosen:
            chosen.append(found[0])
    return chosen


def visible_names() -> list[str]:
    """Return a name for each visible GPU, in order, as used in CUDA_VISIBLE_DEVICES."""
    return [card.device for card in visible_gpus()]


def held_gpus(engines: Iterable[tuple[Sequence[str] | None, int]]) -> list[Gpu]:
    """Return the GPUs used by `engines`, without duplicates.

    Each engine is given by its visible devices (None: all GPUs visible to this process) and its tensor-parallel size:
    it uses that many of the devices, from the first on.
    """
    visible = visible_gpus()
    held: list[Gpu] = []
    for devices, width in engines:
        cards = visible if devices is None else select(devices, node_gpus())
        held += [card for card in cards[:width] if card not in held]
    return held


def accelerator() -> Literal["gpu", "cpu"]:
    """Return `gpu` if this process can use an NVIDIA GPU, else `cpu`; loads no GPU library."""
    names = _visible()
    if names is not None and not re.match(r"\d|GPU-|MIG-", names[0]):  # empty, `-1`, or Slurm's NoDevFiles
        return "cpu"
    # A control group that denies access to a GPU leaves its file in place.
    if any(os.access(path, os.R_OK | os.W_OK) for path in _DEVICES.glob("nvidia[0-9]*")):
        return "gpu"
    return "gpu" if _run("-L").strip() else "cpu"  # no such files, as in WSL


def _visible() -> list[str] | None:
    text = os.environ.get(_CUDA)
    return None if text is None else [name.strip() for name in text.split(",")]


CUDA, MIN_DRIVER = "13.0", 580
"""CUDA: the version for which the vLLM builds in pyproject.toml (0.31 and 0.32) are compiled, see torch's requirement
cuda-toolkit. MIN_DRIVER: the major version of the oldest driver that supports all minor versions of this CUDA release
(table 1 of https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). Check both when
pyproject.toml allows another version of vLLM."""


def driver_problem(driver: str) -> str | None:
    """Return why vLLM does not run with a driver such as `570.86.15`, and the remedy; None if it runs.

    Raises ValueError for an invalid driver version.
    """
    first = driver.partition(".")[0]
    if not first.isdecimal():
        raise ValueError(f"expected a driver version such as 570.86.15, not {driver!r}")
    if int(first) >= MIN_DRIVER:
        return None
    return (
        f"vLLM is built for CUDA {CUDA}, which needs driver {MIN_DRIVER} or later, not {driver}. Update the driver. On "
        "data-center GPUs, alternatively set VLLM_ENABLE_CUDA_COMPATIBILITY=1 and install NVIDIA's "
        f"cuda-compat-{CUDA.replace('.', '-')}, or run in vLLM's container vllm/vllm-openai"
    )
