"""Arguments of vLLM's engine are checked without importing vLLM, and without an installed one as far as possible."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engines import libraries, vllm_arguments
from harness.engines.settings import pair_settings

needs_vllm = pytest.mark.needs_tool("vllm")
_DECLARATIONS = """
from typing import Any, Literal
from vllm.config.cache import CacheDType

class EngineArgs:
    kv_cache_dtype: CacheDType = "auto"
    max_num_seqs: int | None = None
    cpu_offload_gb: float = 0
    enforce_eager: bool = False
    twice: int = 0
    generation_config: str = "auto"
    backend: Literal["one", "two"] | None = None
    attention_config: AttentionConfig = None
    overrides: "dict[str, Any] | None" = None

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
"""

_LIMITS = """
class SchedulerConfig:
    max_num_seqs: int = Field(default=DEFAULT, ge=1)
    cpu_offload_gb: float = Field(default=0, ge=0.5, lt=8)
    twice: int = Field(default=0, ge=0)

class OtherConfig:
    twice: int = Field(default=0, ge=9)
"""


@pytest.fixture
def an_installed_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of that name which cannot be imported."""
    package = tmp_path / "vllm"
    for folder in (package, package / "engine", package / "config"):
        folder.mkdir()
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "engine" / "arg_utils.py").write_text(_DECLARATIONS)
    (package / "config" / "cache.py").write_text("from typing import Literal\nCacheDType = Literal['auto', 'fp8']\n")
    (package / "config" / "scheduler.py").write_text(_LIMITS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (libraries._declared, libraries.source, libraries._choices_of, libraries._limits):
        cached.cache_clear()


@pytest.mark.usefixtures("an_installed_vllm")
@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("kv_cache_dtype", "fp9", "valid: auto, fp8"),
        ("max_num_seqs", "many", "valid: a whole number"),
        ("max_num_seqs", True, "valid: a whole number"),
        ("max_num_seqs", 1.5, "valid: a whole number"),
        ("cpu_offload_gb", "all", "valid: a whole number or a number"),
        ("enforce_eager", 1, "valid: true or false"),
        ("generation_config", 3, "valid: text"),
        ("backend", "three", "valid: one, two"),
        ("overrides", "x", "valid: a JSON object"),
        ("max_num_seqs", -5, "valid: at least 1"),
        ("cpu_offload_gb", 8, "valid: at least 0.5 and below 8"),
        ("max_num_seq", 8, "not an argument of this vLLM's engine; did you mean max_num_seqs?"),
    ],
)
def test_names_and_types_are_those_that_the_installed_vllm_declares(name: str, value: Any, valid: str) -> None:
    with pytest.raises(ValueError, match=r"^--target-engine ") as refused:
        libraries.check("target", {name: value})
    assert str(refused.value).endswith(valid)


@pytest.mark.usefixtures("an_installed_vllm")
def test_what_fits_its_declaration_is_accepted() -> None:
    values = {"kv_cache_dtype": "fp8", "max_num_seqs": 8, "cpu_offload_gb": 2, "enforce_eager": True, "backend": "two"}
    libraries.check("draft", values | {"attention_config": {"backend": "x"}, "overrides": {"a": 1}})
    libraries.check("draft", {"twice": 1, "enable_log_requests": True, "generation_config": "vllm"})


def test_without_vllm_only_what_the_harness_sets_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget()
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert not libraries.is_known_here()
    libraries.check("target", {"no_such_argument": 1})
    with pytest.raises(ValueError, match="--target-engine max_model_len=9: give --max-context"):
        libraries.check("target", {"max_model_len": 9})
    _forget()


@needs_vllm
def test_everything_that_the_harness_sets_is_refused_or_may_be_overridden() -> None:
    declared = libraries._declared()
    assert declared is not None
    assert set(libraries._RESERVED) <= set(declared)
    assert set(libraries.UNPLANNED) <= set(declared)
    for value in ("fp8", "auto"):
        libraries.check("target", {"kv_cache_dtype": value})
    with pytest.raises(ValueError, match="valid: auto, float16, bfloat16, fp8"):
        libraries.check("target", {"kv_cache_dtype": "int3"})
    with pytest.raises(ValueError, match="--target-engine max_num_seqs=-5: valid: at least 1"):
        libraries.check("target", {"max_num_seqs": -5})
    with pytest.raises(ValueError, match="valid: awq, "):
        libraries.check("target", {"quantization": "nosuch"})


@needs_vllm
@pytest.mark.vllm
def test_arguments_reach_vllm_before_those_of_the_harness(tiny_models: dict[Any, Path]) -> None:
    settings = pair_settings("vllm", ("target",), dtype="float32", concurrency=4)["target"]
    own = replace(settings, libraries=(("generation_config", '"vllm"'), ("max_num_seqs", "3")))
    made = vllm_arguments.engine_arguments(str(tiny_models["target"]), None, own)
    assert (made.max_num_seqs, made.generation_config) == (3, "vllm")
    assert vllm_arguments.engine_arguments(str(tiny_models["target"]), None, settings).max_num_seqs == 4
