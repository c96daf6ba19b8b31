"""A stand-in for nvidia-smi on the path, which answers like the real one for cards of a test's choice."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.sizing.memory import cards_here

_NVIDIA_SMI = """#!{python} -ISE
import json, sys
cards, slices = json.loads({data!r})
query = next((a.partition("=")[2] for a in sys.argv if a.startswith("--query-gpu=")), None)
if query is None:
    for card in cards:
        print(f"GPU {{card['index']}}: {{card['name']}} (UUID: {{card['uuid']}})")
        for number, (profile, uuid) in enumerate(slices.get(str(card["index"]), [])):
            print(f"  MIG {{profile}}     Device  {{number}}: (UUID: {{uuid}})")
for card in cards if query is not None else []:
    for field in query.split(","):
        if field not in card:
            print(f'Field "{{field}}" is not a valid field to query.')
            sys.exit(2)
    print(", ".join(str(card[field]) for field in query.split(",")))
"""


def card(
    index: int = 0,
    name: str = "NVIDIA A100-SXM4-80GB",
    memory: int = 81920,
    used: int = 4,
    driver: str = "570.86.15",
    mig: str = "Disabled",
    mode: str = "Default",
) -> dict[str, Any]:
    """What nvidia-smi knows about one card: memory in MiB."""
    return {
        "index": index,
        "uuid": f"GPU-{index:08x}-aaaa-bbbb-cccc-dddddddddddd",
        "name": name,
        "memory.total": memory,
        "memory.used": used,
        "driver_version": driver,
        "compute_mode": mode,
        "mig.mode.current": mig,
    }


def put_nvidia_smi(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    cards: Sequence[Mapping[str, Any]],
    slices: Mapping[int, Sequence[tuple[str, str]]] | None = None,
) -> None:
    """Put an nvidia-smi that lists these cards first on the path; `slices`: profile and UUID by the card's index."""
    data = json.dumps([list(cards), {str(index): list(parts) for index, parts in (slices or {}).items()}])
    put_tool(folder, monkeypatch, "nvidia-smi", _NVIDIA_SMI.format(python=sys.executable, data=data))


def put_tool(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put a program first on the path, and unset the variable that hides cards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cards_here.cache_clear()
