"""Settings of the engines on a node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engine import Role
from harness.engines import settings, vllm
from harness.engines.placement import core_lists
from harness.engines.settings import EngineSettings, pair_settings
from harness.engines.vllm import variables
from harness.settings.roles import ModelSettings

PAIR: tuple[Role, ...] = ("draft", "target")


def test_on_a_gpu_the_engines_split_the_memory_and_leave_some() -> None:
    settings = pair_settings("vllm", PAIR, device="gpu", concurrency=32, candidates=5)
    assert (settings["draft"].memory_fraction, settings["target"].memory_fraction) == (0.12, 0.78)
    assert (settings["draft"].max_num_seqs, settings["target"].max_num_seqs) == (160, 32)
    assert not settings["target"].enforce_eager
    assert settings["target"].kv_cache_bytes is None


def test_on_a_cpu_the_caches_have_a_size_and_small_blocks() -> None:
    settings = pair_settings(
        "vllm", PAIR, device="cpu", models={"draft": ModelSettings(memory=0.25), "target": ModelSettings(memory=0.5)}
    )
    for engine_settings in settings.values():
        assert engine_settings.enforce_eager
        assert engine_settings.block_size == 32
    assert settings["target"].kv_cache_bytes == pytest.approx(2 * (settings["draft"].kv_cache_bytes or 0), rel=0.01)


@pytest.mark.parametrize(
    ("cores", "ranks", "concurrency", "expected"),
    [
        (2, 1, 1, {"draft": "0,1", "target": "0,1"}),
        (2, 1, 16, {"draft": "0", "target": "1"}),
        (2, 2, 16, {"draft": "0|1", "target": "0|1"}),
        (8, 1, 2, {"draft": "0,1,2,3,4,5,6,7", "target": "0,1,2,3,4,5,6,7"}),
        (8, 1, 16, {"draft": "0,1", "target": "2,3,4,5,6,7"}),
        (8, 2, 16, {"draft": "0|1", "target": "2,3,4|5,6,7"}),
        (2, 1, 16, {"draft": "0", "target": "1", "reward": "0"}),  # it has cores of its own or those of the draft
        (2, 1, 1, {"draft": "0,1", "target": "0,1", "reward": "0,1"}),
        (1, 1, 16, {"draft": "0", "target": "0", "reward": "0"}),
        (3, 1, 16, {"draft": "0", "target": "2", "reward": "1"}),
        (8, 1, 16, {"draft": "0,1", "target": "4,5,6,7", "reward": "2,3"}),
        (8, 1, 16, {"target": "2,3,4,5,6,7", "reward": "0,1"}),
        (1, 1, 16, {"target": "0", "reward": "0"}),
    ],
)
def test_cores_are_shared_by_engines_that_take_turns_and_divided_between_others(
    cores: int, ranks: int, concurrency: int, expected: dict[Role, str]
) -> None:
    roles = tuple(expected)
    assert core_lists(roles, dict.fromkeys(roles, ranks), concurrency, list(range(cores))) == expected


def test_more_ranks_than_cores_are_bound_to_none() -> None:
    assert core_lists(PAIR, {"draft": 1, "target": 2}, 16, [0]) == {"draft": "0", "target": None}


def test_float32_is_calculated_with_all_bits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = EngineSettings(kind="vllm", device="gpu", dtype="float32")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in variables(EngineSettings(kind="vllm", device="gpu"))
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32x3")
    assert variables(exact)["TRITON_F32_DEFAULT"] == "tf32x3"


def test_an_argument_of_vllms_engine_is_refused_where_the_harness_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "declared_arguments", frozenset)
    settings.check_arguments("target", {"no_such_argument": 1})
    with pytest.raises(ValueError, match=r"--target.engine max_model_len=9: use --max-context"):
        settings.check_arguments("target", {"max_model_len": 9})


@pytest.mark.needs_tool("vllm")
def test_other_arguments_are_those_of_the_installed_vllm() -> None:
    declared = settings.declared_arguments()
    assert set(settings._RESERVED) | set(settings.UNPLANNED) <= declared
    settings.check_arguments("target", {"kv_cache_dtype": "fp8"})
    with pytest.raises(ValueError, match=r"max_num_seq=8: not an argument .*; did you mean max_num_seqs"):
        settings.check_arguments("target", {"max_num_seq": 8})


@pytest.mark.needs_tool("vllm")
@pytest.mark.vllm
def test_arguments_reach_vllm_before_those_of_the_harness(tiny_models: dict[Any, Path]) -> None:
    own = pair_settings("vllm", ("target",), dtype="float32", concurrency=4)["target"]
    given = replace(own, arguments=(("generation_config", '"vllm"'), ("max_num_seqs", "3")))
    made = vllm.engine_arguments(str(tiny_models["target"]), None, given)
    assert (made.max_num_seqs, made.generation_config) == (3, "vllm")
    assert vllm.engine_arguments(str(tiny_models["target"]), None, own).max_num_seqs == 4
