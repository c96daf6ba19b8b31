"""vLLM engines on tiny random models: their settings and their processes."""

from __future__ import annotations

import dataclasses

import psutil

from harness.engine import Role
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.vllm import VLLMEngine
from harness.settings.roles import ModelSettings

PROMPT = list(range(40, 140))
"""Longer than three blocks of the prefix cache."""


def tiny_settings() -> dict[Role, EngineSettings]:
    whole = pair_settings(
        "vllm", ("draft", "target"), dtype="float32", concurrency=16, models={"target": ModelSettings(memory=0.3)}
    )
    return {
        role: dataclasses.replace(s, kv_cache_bytes=32 << 20 if s.device == "cpu" else None, enforce_eager=True)
        for role, s in whole.items()
    }


def processes_of(engine: VLLMEngine) -> set[psutil.Process]:
    assert engine.processes is not None
    return engine.processes.find()


def alive(processes: set[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def core_of(engine: VLLMEngine) -> psutil.Process:
    [process] = [p for p in processes_of(engine) if "EngineCore" in " ".join(p.cmdline())]
    return process
