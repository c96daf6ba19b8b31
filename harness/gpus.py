"""The GPUs of this node, those of them that this process may use, and which of vLLM's builds their drivers serve.

nvidia-smi lists NVIDIA cards and rocm-smi AMD cards, so a process learns about its cards without loading a GPU library.
Which of them it may use follows from the variables that CUDA and ROCm read (CUDA_VISIBLE_DEVICES,
ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES), and inside a Slurm job that sets none of them from the job's own. The builds
are those of the table in harness/data/vllm_builds.toml. Only the standard library is imported, because
harness.installation runs before anything is installed.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

_TIMEOUT_SECONDS = 30.0
"""nvidia-smi initializes every card where no persistence daemon keeps them initialized, which takes seconds each."""
_PAUSE_SECONDS = 120.0
"""For so long a tool that did not answer is not asked again: where a driver hangs, each question costs its limit."""
_unanswered: dict[str, float] = {}
"""Paths of tools that did not answer, with the time of `time.monotonic` when they were given up."""
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version")
_LATER_FIELDS = ("compute_cap", "compute_mode", "mig.mode.current")
"""Fields that nvidia-smi of older drivers lacks."""
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
    compute_capability: tuple[int, int] | None = None
    compute_mode: str | None = None
    """`Default`, `Exclusive_Process` or `Prohibited`."""
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
    fields: tuple[str, ...] = (*_FIELDS, *_LATER_FIELDS)
    try:
        rows = _rows(fields)
    except QueryFailed as failure:
        if "not a valid field" not in str(failure):
            raise
        fields = _FIELDS
        rows = _rows(fields)
    cards = [_nvidia_card(dict(zip(fields, row, strict=True))) for row in rows]
    divided = {card.index for card, row in zip(cards, rows, strict=True) if row[-1] == "Enabled" and len(row) > 6}
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


def _rows(fields: Sequence[str]) -> list[list[str]]:
    text = _run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines())]
    complete_rows = [row for row in rows if len(row) == len(fields) and row[0].isdecimal()]
    if not complete_rows:
        raise QueryFailed(f"nvidia-smi lists no card: {text.strip()[:80]!r}")
    return complete_rows


def _nvidia_card(values: dict[str, str]) -> Gpu:
    capability = re.fullmatch(r"(\d+)\.(\d+)", values.get("compute_cap", ""))
    return Gpu(
        index=int(values["index"]),
        uuid=values["uuid"] if values["uuid"].startswith("GPU-") else None,
        name=values["name"],
        memory_bytes=_mebibytes(values["memory.total"]),
        used_bytes=_mebibytes(values["memory.used"]),
        driver=values["driver_version"] if values["driver_version"][:1].isdecimal() else None,
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        compute_mode=mode if (mode := values.get("compute_mode", "["))[:1].isalpha() else None,
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
    path = shutil.which(tool)
    if path is None:
        raise QueryFailed(f"{tool} is not installed")
    no_answer = f"{tool} does not answer within {_TIMEOUT_SECONDS:.0f} s"
    if time.monotonic() - _unanswered.get(path, -math.inf) < _PAUSE_SECONDS:
        raise QueryFailed(no_answer)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as problem:
        _unanswered[path] = time.monotonic()
        raise QueryFailed(no_answer) from problem
    except OSError as problem:
        raise QueryFailed(str(problem)) from problem
    if done.returncode != 0:
        text = (done.stdout.strip() or done.stderr.strip())[:120]
        raise QueryFailed(f"{tool} ended with status {done.returncode}: {text!r}")
    return done.stdout


_CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"
_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Slurm's variables with the numbers of a job's cards on this node."""
_SLURM_COUNT = "SLURM_GPUS_ON_NODE"
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
        return _left_by_rocr(cards) if _names(_ROCR) is not None else _of_slurm_job(cards)
    if (names := _names(_CUDA)) is not None:
        return _usable_together(select(names, cards))
    return _usable_together(_of_slurm_job(cards))


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


def whole_names() -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES should be where it has beginnings of UUIDs; None where it has none.

    CUDA takes them. vLLM looks for a card of exactly that name, and does not start (vllm-project/vllm#51677).
    """
    names = _names(_CUDA) or []
    if not any(name.startswith(("GPU-", "MIG-")) for name in names):
        return None
    found = tuple(card.device for card in select(names, node_gpus()) if card.vendor == "nvidia")
    return found if found and list(found) != names else None


def slurm_devices() -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES should be in a Slurm job that names its cards without setting the variable.

    None where a variable restricts the process already, where it sees only the job's cards, or outside of such a job.
    """
    if any(name in os.environ for name in (_CUDA, _ROCR, _HIP)) or not any(os.environ.get(name) for name in _SLURM):
        return None
    cards = node_gpus()
    of_job = _of_slurm_job(cards)
    if len(of_job) == len(cards):
        return None
    # vLLM takes nothing but numbers for AMD cards.
    return tuple(card.device if card.vendor == "nvidia" else str(card.index) for card in of_job)


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


def _of_slurm_job(cards: list[Gpu]) -> list[Gpu]:
    """Return the cards of this Slurm job; all of them outside of a job, or where the job sees no others."""
    for variable in _SLURM:
        if names := [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]:
            chosen = select(names, cards)
            # Where a control group hides the other cards, those that are left have other numbers than Slurm's.
            return chosen if len(names) < len(cards) and len(chosen) == len(names) else cards[: len(names)]
    count = os.environ.get(_SLURM_COUNT, "")
    return cards[: int(count)] if count.isdecimal() and int(count) else cards


def _usable_together(cards: list[Gpu]) -> list[Gpu]:
    """Return what CUDA shows a process of these cards: of MIG slices only the first."""
    slices = [card for card in cards if (card.uuid or "").startswith("MIG-")]
    return slices[:1] if slices and slices[0] is cards[0] else [card for card in cards if card not in slices]


_TABLE = Path(__file__).parent / "data" / "vllm_builds.toml"
MIN_COMPUTE_CAPABILITY = (7, 5)
"""Of vLLM's builds for CUDA, according to its documentation on installation."""


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


def newest_cuda(driver: str) -> str:
    """Return the newest major version of CUDA that a driver runs, such as `12`, in words for older drivers."""
    minimum = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["minimum_driver"]
    served = [int(cuda) for cuda, oldest in minimum.items() if oldest <= _number(driver)]
    return str(max(served)) if served else "11 or earlier"


def driver_remedies(driver: str) -> str:
    """Return what can be done with a driver that no supported build runs with, in one line."""
    newest, oldest = vllm_builds()[0], vllm_builds()[-1]
    served, needed = newest_cuda(driver), min(build.min_driver for build in vllm_builds())
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
