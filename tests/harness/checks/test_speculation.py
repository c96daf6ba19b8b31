"""The doctor's checks of token-level speculation, on real configuration files."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from harness import environment
from harness.checks import inputs
from harness.checks.finding import Check, Probe, probe
from harness.engines import speculation as settings
from tests.harness.checks.question import QUESTION, problem_texts, worst_status
from tests.harness.checks.test_inputs import write_shard
from tests.harness.engines.heads import EAGLE3_CONFIG, save_config, target_config

HEAD_FIELDS = ["method", "num_speculative_tokens", "model", "revision", "draft_sample_method"]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(environment, "accelerator", lambda: "gpu")
    return str(save_config(tmp_path / "target", target_config()))


def _knows(monkeypatch: pytest.MonkeyPatch, methods: list[str], fields: list[str]) -> None:
    """Stand in for a vLLM of another version, which no test can install."""
    answer = Probe({"methods": methods, "fields": fields}, None)
    monkeypatch.setattr(inputs, "probe", lambda program, seconds: answer)


def _checks(target: str, **changes: object) -> list[Check]:
    question = replace(QUESTION, models={"target": target}, spec_decode="eagle3", **changes)  # type: ignore[arg-type]
    return list(inputs.check_speculation(question))


def test_a_head_with_its_weights_is_ok(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _knows(monkeypatch, ["eagle3"], HEAD_FIELDS)
    head = save_config(tmp_path / "head", EAGLE3_CONFIG)
    write_shard(head / "model.safetensors")
    assert worst_status(_checks(target, speculator=str(head))) == "ok"
    assert "GREEDY DRAFTS" in problem_texts(_checks(target, speculator=str(head), temperature=0.6))


def test_missing_weights_and_another_target_are_named(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _knows(monkeypatch, ["eagle3"], HEAD_FIELDS)
    head = save_config(tmp_path / "head", EAGLE3_CONFIG | {"hidden_size": 96})
    text = problem_texts(_checks(target, speculator=str(head)))
    assert "no weights (*.safetensors)" in text
    assert "with a hidden size of 96" in text


def test_what_a_version_of_vllm_lacks_is_named_with_the_remedy(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = save_config(tmp_path / "head", EAGLE3_CONFIG)
    write_shard(head / "model.safetensors")
    _knows(monkeypatch, ["eagle", "ngram"], HEAD_FIELDS)
    assert "this vLLM has no method eagle3: install version 0.32" in problem_texts(
        _checks(target, speculator=str(head))
    )
    _knows(monkeypatch, ["eagle3"], HEAD_FIELDS[:-1])
    assert worst_status(_checks(target, speculator=str(head))) == "ok"
    sampled = _checks(target, speculator=str(head), spec_sampling="probabilistic")
    assert "has no draft_sample_method: leave out --spec-sampling" in problem_texts(sampled)


def test_suffix_without_its_package_is_a_failure(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    question = replace(QUESTION, models={"target": target}, spec_decode="suffix")
    assert "pip install arctic-inference" in problem_texts(list(inputs.check_speculation(question)))


@pytest.mark.needs_tool("vllm")
def test_the_installed_vllm_has_every_method_and_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "accelerator", lambda: "gpu")
    monkeypatch.setattr(settings, "find_spec", lambda name: object())
    once = functools.cache(probe)
    monkeypatch.setattr(inputs, "probe", once)
    for proposer in settings.PROPOSERS:
        question = replace(QUESTION, spec_decode=proposer, spec_sampling="probabilistic")
        checks = list(inputs.check_speculation(question))
        assert worst_status(checks) == "ok", problem_texts(checks)
