"""The GPUs of this node, as nvidia-smi lists NVIDIA cards and rocm-smi AMD cards.

So a process learns about its cards without loading a GPU library. Only the standard library is imported, because
harness.installation runs before anything is installed.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
