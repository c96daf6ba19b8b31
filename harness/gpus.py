"""The GPUs of this node, those of them that this process may use, and which of vLLM's builds their drivers serve.

nvidia-smi lists the cards, so a process learns about them without loading a GPU library. Which of them it may use
follows from CUDA_VISIBLE_DEVICES, which Slurm sets in its jobs. The builds are those of the table in
harness/data/vllm_builds.toml. Only the standard library is imported, because harness.installation runs before anything
is installed.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
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
    cards = [_nvidia_card(dict(zip(_FIELDS, row, strict=True))) for row in rows]
    divided = {card.index for card, row in zip(cards, rows, strict=True) if row[-1] == "Enabled"}
    return list(_with_slices(cards, divided)) if divided else cards


def _nvidia_card(values: dict[str, str]) -> Gpu:
    return Gpu(
        index=int(values["index"]),
        uuid=values["uuid"] if values["uuid"].startswith("GPU-") else None,
        name=values["name"],
        memory_bytes=_mebibytes(values["memory.total"]),
        used_bytes=_mebibytes(values["memory.used"]),
        driver=values["driver_version"] if values["driver_version"][:1].isdecimal() else None,
        is_exclusive=values["compute_mode"] == "Exclusive_Process",
    )


def _mebibytes(text: str) -> int:
    return int(text) << 20 if text.isdecimal() else 0  # "[N/A]" where GPU and CPU share their memory


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


def _run(*flags: str) -> str:
    """Return what nvidia-smi prints; nothing where it is missing, fails or does not answer in time."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *flags],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


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


@dataclass(frozen=True)
class VllmBuild:
    """A release of vLLM on PyPI, and what it was built with."""

    vllm: str
    torch: str
    cuda: str
    min_driver: int
    """First number of the oldest driver that it runs with."""


@cache
def vllm_builds() -> tuple[VllmBuild, ...]:
    """Return the supported builds, newest first."""
    text = (resources.files("harness") / "data" / "vllm_builds.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    minimum = table["minimum_driver"]
    return tuple(
        VllmBuild(row["vllm"], row["torch"], row["cuda"], minimum[row["cuda"].partition(".")[0]])
        for row in table["builds"]
    )


def newest_build_for(driver: str) -> VllmBuild | None:
    """Return the newest supported build that runs with a driver, such as `570.86.15`; None if none does."""
    return next((build for build in vllm_builds() if build.min_driver <= _number(driver)), None)


def build_of_version(vllm: str) -> VllmBuild | None:
    """Return the build of an installed version of vLLM; None if the table lacks it."""
    return next((build for build in vllm_builds() if build.vllm == vllm.partition("+")[0]), None)


def driver_remedies(driver: str) -> str:
    """Return what can be done with a driver that no supported build runs with, in one line."""
    newest = vllm_builds()[0]
    return (
        f"vLLM {newest.vllm} is built for CUDA {newest.cuda}, which needs driver {newest.min_driver} or later, not "
        f"{driver}. Have the driver updated; or, with data-center cards, set VLLM_ENABLE_CUDA_COMPATIBILITY=1 and "
        f"install NVIDIA's cuda-compat-{newest.cuda.replace('.', '-')} or run in the container "
        f"vllm/vllm-openai:v{newest.vllm}"
    )


def _number(driver: str) -> int:
    """Return the first number of a driver's version. Raises ValueError."""
    first = driver.partition(".")[0]
    if not first.isdecimal():
        raise ValueError(f"a driver's version starts with a number, as 570.86.15 does, not {driver!r}")
    return int(first)
