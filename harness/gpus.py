"""The GPUs of this node, those of them that this process may use, and which of vLLM's builds their drivers serve.

nvidia-smi lists NVIDIA cards and rocm-smi AMD cards, so a process learns about its cards without loading a GPU library.
Which of them it may use follows from the variables that CUDA and ROCm read (CUDA_VISIBLE_DEVICES,
ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES), which Slurm sets in its jobs. The builds are those of the table in
harness/data/vllm_builds.toml. Only the standard library is imported, because harness.installation runs before anything
is installed.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

_TIMEOUT_SECONDS = 30.0
"""nvidia-smi initializes every card where no persistence daemon keeps them initialized, which takes seconds each."""
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "mig.mode.current")
_MIG_SLICE = re.compile(r"\s+MIG\s+(?P<profile>\S*?(?P<gigabytes>\d+)gb\S*)\s.*\(UUID:\s*(?P<uuid>\S+)\)")
_ROCM_FLAGS = ("--showproductname", "--showmeminfo", "vram", "--showuniqueid", "--showdriverversion", "--json")


class QueryFailed(RuntimeError):
    """The driver's tool is missing or failed; the message is one line."""


@dataclass(frozen=True)
class Gpu:
    """A card, or a slice of one that is divided by MIG."""

    index: int
    """Number on the node in PCI order, as nvidia-smi and rocm-smi count; of a slice that of its card."""
    uuid: str | None
    """Name that stays the same in any order; CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES take it."""
    name: str
    memory_bytes: int
    """0 where the tool does not say, as for memory that GPU and CPU share."""
    used_bytes: int
    """Memory in use by any process."""
    driver: str | None
    vendor: Literal["nvidia", "amd"] = "nvidia"

    @property
    def device(self) -> str:
        """The value that makes exactly this card visible."""
        return self.uuid or str(self.index)


def node_gpus() -> list[Gpu]:
    """Return all cards that nvidia-smi or rocm-smi lists, slices in place of divided cards; empty where both fail."""
    for query in (query_nvidia, query_amd):
        try:
            return query()
        except QueryFailed:
            continue
    return []


def query_nvidia() -> list[Gpu]:
    """Return the cards that nvidia-smi lists. Raises QueryFailed."""
    text = _run(["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    rows = [row for row in rows if len(row) == len(_FIELDS) and row[0].isdecimal()]
    if not rows:
        raise QueryFailed(f"nvidia-smi lists no card: {text.strip()[:80]!r}")
    cards = [_nvidia_card(dict(zip(_FIELDS, row, strict=True))) for row in rows]
    divided = {card.index for card, row in zip(cards, rows, strict=True) if row[-1] == "Enabled"}
    return list(_with_slices(cards, divided)) if divided else cards


def query_amd() -> list[Gpu]:
    """Return the cards that rocm-smi lists. Raises QueryFailed."""
    text = _run(["rocm-smi", *_ROCM_FLAGS])
    try:
        answer = json.loads(text[text.index("{") :])  # warnings come before the answer
        driver = answer.get("system", {}).get("Driver version")
        cards = [_amd_card(key, values, driver) for key, values in answer.items() if re.fullmatch(r"card\d+", key)]
    except (ValueError, TypeError, AttributeError) as problem:
        raise QueryFailed(f"rocm-smi: {problem}") from problem
    if not cards:
        raise QueryFailed("rocm-smi lists no card")
    return sorted(cards, key=lambda card: card.index)


def lists_nvidia() -> bool:
    """Return whether nvidia-smi lists any card at all, which asks less of the driver than `query_nvidia`."""
    try:
        return bool(_run(["nvidia-smi", "-L"]).strip())
    except QueryFailed:
        return False


def _nvidia_card(values: dict[str, str]) -> Gpu:
    return Gpu(
        index=int(values["index"]),
        uuid=values["uuid"] if values["uuid"].startswith("GPU-") else None,
        name=values["name"],
        memory_bytes=_mebibytes(values["memory.total"]),
        used_bytes=_mebibytes(values["memory.used"]),
        driver=values["driver_version"] if values["driver_version"][:1].isdecimal() else None,
    )


def _mebibytes(text: str) -> int:
    return int(text) << 20 if text.isdecimal() else 0  # "[N/A]" where GPU and CPU share their memory


def _with_slices(cards: list[Gpu], divided: set[int]) -> Iterator[Gpu]:
    """Yield the cards, with the slices that nvidia-smi lists in place of the divided ones."""
    slices: dict[int, list[Gpu]] = {}
    by_index = {card.index: card for card in cards}
    card: Gpu | None = None
    for line in _run(["nvidia-smi", "-L"]).splitlines():
        if heading := re.match(r"GPU (\d+):", line):
            card = by_index.get(int(heading[1]))
        elif card is not None and (found := _MIG_SLICE.match(line)):
            size = int(found["gigabytes"]) * 10**9  # the profile's size, of which a slice has slightly more
            part = replace(card, uuid=found["uuid"], name=f"{card.name} MIG {found['profile']}", memory_bytes=size)
            slices.setdefault(card.index, []).append(replace(part, used_bytes=0))
    for each in cards:
        yield from slices.get(each.index, []) if each.index in divided else [each]


def _amd_card(key: str, values: dict[str, Any], driver: str | None) -> Gpu:
    unique = str(values.get("Unique ID", ""))
    names = (values.get(name) for name in ("Card Series", "Card series", "Card Model", "Card model"))
    return Gpu(
        index=int(key.removeprefix("card")),
        uuid=f"GPU-{unique.removeprefix('0x')}" if unique.startswith("0x") else None,
        name=next((str(name) for name in names if name), "AMD GPU"),
        memory_bytes=int(values.get("VRAM Total Memory (B)", 0)),
        used_bytes=int(values.get("VRAM Total Used Memory (B)", 0)),
        driver=driver,
        vendor="amd",
    )


def _run(command: list[str]) -> str:
    """Return what a driver's tool prints. Raises QueryFailed."""
    tool = command[0]
    if shutil.which(tool) is None:
        raise QueryFailed(f"{tool} is not installed")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as problem:
        raise QueryFailed(f"{tool} does not answer within {_TIMEOUT_SECONDS:.0f} s") from problem
    if done.returncode != 0:
        text = (done.stdout.strip() or done.stderr.strip())[:120]
        raise QueryFailed(f"{tool} ended with status {done.returncode}: {text!r}")
    return done.stdout


_CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"
_DEVICES = Path("/dev")


def visible_gpus() -> list[Gpu]:
    """Return the cards that this process may use, in the order in which CUDA or ROCm numbers them."""
    cards = node_gpus()
    if not cards:
        return []
    if cards[0].vendor == "amd":
        # ROCm's lower layer applies its variable first; the upper one then counts what is left.
        if (names := _names(_HIP, _CUDA)) is not None:
            return select(names, _left_by_rocr(cards), by_position=True)
        return _left_by_rocr(cards)
    names = _names(_CUDA)
    return _usable_together(cards if names is None else select(names, cards))


def select(names: Iterable[str], cards: Sequence[Gpu], *, by_position: bool = False) -> list[Gpu]:
    """Return the cards that these numbers, UUIDs, beginnings of UUIDs or MIG ids name, in that order.

    As in CUDA, the first name of no card ends the list. `by_position` numbers the given cards from 0.
    """
    chosen: list[Gpu] = []
    for name in names:
        if name.isdecimal():
            found = [card for place, card in enumerate(cards) if (place if by_position else card.index) == int(name)]
        else:
            found = [card for card in cards if name and card.uuid is not None and card.uuid.startswith(name)]
        if not found:
            break
        if found[0] not in chosen:
            chosen.append(found[0])
    return chosen


def visible_names() -> list[str]:
    """Return a name for each visible card, in order; CUDA_VISIBLE_DEVICES takes them (ROCm: HIP_VISIBLE_DEVICES)."""
    visible = visible_gpus()
    if not visible or visible[0].vendor == "nvidia":
        return [card.device for card in visible]
    counted = _left_by_rocr(node_gpus())
    return [str(counted.index(card)) for card in visible]


def named(names: Iterable[str]) -> list[Gpu]:
    """Return the cards that names of `visible_names` stand for."""
    cards = node_gpus()
    if cards and cards[0].vendor == "amd":
        return select(names, _left_by_rocr(cards), by_position=True)
    return select(names, cards)


def _left_by_rocr(cards: list[Gpu]) -> list[Gpu]:
    """Return the cards that the lower layer of ROCm leaves to the upper one, which numbers them from 0."""
    names = _names(_ROCR)
    return cards if names is None else select(names, cards)


def held_gpus(engines: Iterable[tuple[Sequence[str] | None, int]]) -> list[Gpu]:
    """Return the cards that engines hold together, from each one's visible devices and tensor parallel size.

    None stands for all visible cards, of which an engine takes the first ones. A card that two engines share counts
    once.
    """
    visible = visible_gpus()
    held: list[Gpu] = []
    for devices, width in engines:
        cards = visible if devices is None else named(devices)
        held += [card for card in cards[:width] if card not in held]
    return held


def accelerator() -> Literal["gpu", "cpu"]:
    """Return whether this process can use an NVIDIA or AMD GPU, without loading a GPU library."""
    if not _hidden(_CUDA):
        # A control group that denies a card leaves its file and denies the access to it.
        if any(_usable(path) for path in _DEVICES.glob("nvidia[0-9]*")):
            return "gpu"
        if lists_nvidia():  # without such files, as in Windows' Linux
            return "gpu"
    if not _hidden(_ROCR, _HIP, _CUDA) and _usable(_DEVICES / "kfd"):
        return "gpu"
    return "cpu"


def _names(*variables: str) -> list[str] | None:
    """Return the names in the first of these variables that is set; None if none is."""
    for variable in variables:
        if (text := os.environ.get(variable)) is not None:
            return [name.strip() for name in text.split(",")]
    return None


def _hidden(*variables: str) -> bool:
    """Return True if one of these variables names no card at all, such as an empty one, `-1` or Slurm's NoDevFiles."""
    firsts = [names[0] for variable in variables if (names := _names(variable)) is not None]
    return not all(re.match(r"\d|GPU-|MIG-", first) for first in firsts)


def _usable(device: Path) -> bool:
    return os.access(device, os.R_OK | os.W_OK)


def _usable_together(cards: list[Gpu]) -> list[Gpu]:
    """Return what CUDA shows a process of these cards: of MIG slices only the first."""
    slices = [card for card in cards if (card.uuid or "").startswith("MIG-")]
    return slices[:1] if slices and slices[0] is cards[0] else [card for card in cards if card not in slices]


_TABLE = Path(__file__).parent / "data" / "vllm_builds.toml"


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
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
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
