"""A process of an engine that waits for its turn leaves its core to others, and sees what is written to it."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engines import idle_workers, parent_watch, vllm_plugin
from harness.engines.settings import pair_settings
from harness.engines.variables import variables

pytestmark = pytest.mark.needs_tool("vllm")


@pytest.fixture
def condition(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """vLLM's class, with its own way of waiting again after the test."""
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    own: type[Any] = SpinCondition
    monkeypatch.setattr(own, "wait", own.wait)
    return own


def _reader(idle_seconds: float) -> SimpleNamespace:
    """What a condition of a reader knows that read its last message this long ago, and gets none."""
    polled: list[int | None] = []

    def poll(timeout: int | None) -> list[Any]:
        polled.append(timeout)
        return []

    return SimpleNamespace(
        is_reader=True, busy_loop_s=1.0, last_read=time.monotonic() - idle_seconds, polled=polled,
        poller=SimpleNamespace(poll=poll), read_cancel_socket=None, local_notify_socket=None,
    )  # fmt: skip


def test_a_process_that_waits_between_two_batches_asks_rarely(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(idle_workers.ENABLED, "1")
    idle_workers.install()
    reader, start, asked = _reader(0.1), time.monotonic(), 0
    while time.monotonic() - start < 0.2:
        condition.wait(reader, None)
        asked += 1
    assert asked <= (time.monotonic() - start) / 0.0002
    assert not reader.polled


def test_a_process_asks_without_a_pause_right_after_a_batch(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(idle_workers.ENABLED, "1")
    paused: list[float] = []
    idle_workers.install()
    monkeypatch.setattr(time, "sleep", paused.append)
    condition.wait(_reader(-1.0), None)
    assert not paused


@pytest.mark.parametrize(("timeout", "waits"), [(None, 100), (60_000, 100), (7, 7)])
def test_a_process_that_waits_for_long_sleeps_and_looks_again_where_its_message_was_lost(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch, timeout: int | None, waits: int
) -> None:
    monkeypatch.setenv(idle_workers.ENABLED, "1")
    idle_workers.install()
    reader = _reader(5.0)
    condition.wait(reader, timeout)
    assert reader.polled == [waits]


def test_what_this_project_does_not_ask_for_it_does_not_change(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = condition.wait
    monkeypatch.delenv(idle_workers.ENABLED, raising=False)
    idle_workers.install()
    assert condition.wait is own


def test_a_vllm_that_waits_in_another_way_is_left_as_it_is(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.distributed.device_communicators import shm_broadcast

    monkeypatch.setenv(idle_workers.ENABLED, "1")
    own, asked = condition.wait, []
    monkeypatch.setattr(condition, "wait", lambda self, timeout_ms=None: asked.append(timeout_ms))
    idle_workers.install()
    condition.wait(SimpleNamespace(), 250)
    assert asked == [250], "one without the time of its last message"
    monkeypatch.setattr(condition, "wait", own)
    monkeypatch.delattr(shm_broadcast, "SpinCondition")
    idle_workers.install()


@pytest.mark.parametrize("is_engine", [True, False])
def test_only_the_processes_of_an_engine_wait_so(
    condition: type[Any], monkeypatch: pytest.MonkeyPatch, is_engine: bool
) -> None:
    own = condition.wait
    monkeypatch.setattr(parent_watch, "install", lambda: None)
    monkeypatch.setenv(idle_workers.ENABLED, "1")
    monkeypatch.setenv(parent_watch.PARENT, str(os.getppid() if is_engine else os.getpid()))
    vllm_plugin.install()
    assert (condition.wait is not own) == is_engine


def test_engines_that_share_a_cpu_wait_so_and_those_on_gpus_as_vllm_does() -> None:
    on_cpu = pair_settings("vllm", ("draft", "target"), dtype="float32", device="cpu")["draft"]
    on_gpu = pair_settings("vllm", ("draft", "target"), dtype="bfloat16", device="gpu")["draft"]
    assert variables(on_cpu)[idle_workers.ENABLED] == "1"
    assert variables(on_gpu)[idle_workers.ENABLED] is None, "unset, whatever the user's own environment says"
