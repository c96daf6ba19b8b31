"""The GPUs of this node, those of them that this process may use, and whether their driver serves vLLM.

nvidia-smi lists the cards, so a process learns about them without loading a GPU library. Which of them it may use
follows from CUDA_VISIBLE_DEVICES, which Slurm sets in its jobs. Only the standard library is imported, because
harness.installation runs before anything is installed.
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
"""nvidia-smi initializes every card where no persistence daemon keeps them initialized, which takes seconds each."""
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "compute_mode", "mig.mode.current")
_MIG_SLICE = re.compile(r"\s+MIG\s+(?P<profile>\S*?(?P<gigabytes>\d+)gb\S*)\s.*\(UUID:\s*(?P<uuid>\S+)\)")


@dataclass(frozen=True)
class Gpu:
    """A card, or a slice of one that is divided by MIG."""

    index: int
    """Number on the node in PCI order, as nvidia-smi counts; of a slice that of its card."""
    uuid: str | None
    """Name that stays the same in any order; CUDA_VISIBLE_DEVICES takes it."""
    name: str
    memory_bytes: int
    """0 where the tool does not say, as for memory that GPU and CPU share."""
    used_bytes: int
    """Memory in use by any process."""
    driver: str | None
    is_exclusive: bool = False
    """Serves one process at a time (compute mode Exclusive_Process), as many clusters set it."""

    @property
    def device(self) -> str:
        """The value that makes exactly this card visible."""
        return self.uuid or str(self.index)


def node_gpus() -> list[Gpu]:
    """Return all cards that nvidia-smi lists, slices in place of divided cards; empty where it fails."""
    text = _run(f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    rows = [row for row in rows if len(row) == len(_FIELDS) and row[0].isdecimal()]
    cards = []
    for index, uuid, name, *memory, driver, mode, _ in rows:
        total, used = (int(text) << 20 if text.isdecimal() else 0 for text in memory)  # "[N/A]" of shared memory
        known = driver if driver[:1].isdecimal() else None
        own = uuid if uuid.startswith("GPU-") else None
        cards.append(Gpu(int(index), own, name, total, used, known, mode == "Exclusive_Process"))
    divided = {card.index for card, row in zip(cards, rows, strict=True) if row[-1] == "Enabled"}
    return list(_with_slices(cards, divided)) if divided else cards


def _with_slices(cards: list[Gpu], divided: set[int]) -> Iterator[Gpu]:
    """Yield the cards, with the slices that nvidia-smi lists in place of the divided ones."""
    slices: dict[int, list[Gpu]] = {}
    by_index = {card.index: card for card in cards}
    card: Gpu | None = None
    for line in _run("-L").splitlines():
        if heading := re.match(r"GPU (\d+):", line):
            card = by_index.get(int(heading[1]))
        elif card is not None and (found := _MIG_SLICE.match(line)):
            size = int(found["gigabytes"]) * 10**9  # the profile's size, of which a slice has slightly more
            part = replace(card, uuid=found["uuid"], name=f"{card.name} MIG {found['profile']}", memory_bytes=size)
            slices.setdefault(card.index, []).append(replace(part, used_bytes=0))
    for each in cards:
        yield from slices.get(each.index, []) if each.index in divided else [each]


def output_of(*command: str, seconds: float) -> str:
    """Return what a command prints; nothing where it is missing, fails or does not answer in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


_run = partial(output_of, "nvidia-smi", seconds=_TIMEOUT_SECONDS)


_CUDA = "CUDA_VISIBLE_DEVICES"
_DEVICES = Path("/dev")


def visible_gpus() -> list[Gpu]:
    """Return the cards that this process may use, in the order in which CUDA numbers them."""
    cards, names = node_gpus(), _visible()
    if names is not None:
        cards = select(names, cards)
    # Of MIG slices CUDA shows a process only the first.
    slices = [card for card in cards if (card.uuid or "").startswith("MIG-")]
    return slices[:1] if slices and slices[0] is cards[0] else [card for card in cards if card not in slices]


def select(names: Iterable[str], cards: Sequence[Gpu]) -> list[Gpu]:
    """Return the cards that these numbers, UUIDs, beginnings of UUIDs or MIG ids name, in that order.

    As in CUDA, the first name of no card ends the list.
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
    """Return a name for each visible card, in order, as CUDA_VISIBLE_DEVICES takes it."""
    return [card.device for card in visible_gpus()]


def held_gpus(engines: Iterable[tuple[Sequence[str] | None, int]]) -> list[Gpu]:
    """Return the cards that engines hold together, from each one's visible devices and tensor parallel size.

    None stands for all visible cards, of which an engine takes the first ones. A card that two engines share counts
    once.
    """
    visible = visible_gpus()
    held: list[Gpu] = []
    for devices, width in engines:
        cards = visible if devices is None else select(devices, node_gpus())
        held += [card for card in cards[:width] if card not in held]
    return held


def accelerator() -> Literal["gpu", "cpu"]:
    """Return whether this process can use an NVIDIA GPU, without loading a GPU library."""
    names = _visible()
    if names is not None and not re.match(r"\d|GPU-|MIG-", names[0]):  # empty, `-1`, or Slurm's NoDevFiles
        return "cpu"
    # A control group that denies a card leaves its file and denies the access to it.
    if any(os.access(path, os.R_OK | os.W_OK) for path in _DEVICES.glob("nvidia[0-9]*")):
        return "gpu"
    return "gpu" if _run("-L").strip() else "cpu"  # without such files, as in Windows' Linux


def _visible() -> list[str] | None:
    """Return the names in CUDA_VISIBLE_DEVICES; None where it is not set."""
    text = os.environ.get(_CUDA)
    return None if text is None else [name.strip() for name in text.split(",")]


CUDA, MIN_DRIVER = "13.0", 580
"""The CUDA that the builds of vLLM in pyproject.toml (0.31 and 0.32) are for, as torch's requirement cuda-toolkit says,
and the first number of the oldest driver that serves any minor version of it (table 1 of
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). When pyproject.toml admits another
version of vLLM, see whether they still hold."""


def driver_problem(driver: str) -> str | None:
    """Return why vLLM does not run with a driver such as `570.86.15`, and what helps; None where it does.

    Raises ValueError where it is no driver's version.
    """
    first = driver.partition(".")[0]
    if not first.isdecimal():
        raise ValueError(f"a driver's version starts with a number, as 570.86.15 does, not {driver!r}")
    if int(first) >= MIN_DRIVER:
        return None
    return (
        f"vLLM is built for CUDA {CUDA}, which needs driver {MIN_DRIVER} or later, not {driver}. Have the driver "
        "updated; or, with data-center cards, set VLLM_ENABLE_CUDA_COMPATIBILITY=1 and install NVIDIA's "
        f"cuda-compat-{CUDA.replace('.', '-')} or run in vLLM's container vllm/vllm-openai"
    )
