"""An engine of a small model on a CPU prepares its matrix products while it starts; others start as vLLM does it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.engines import matrix_products
from harness.engines.settings import pair_settings
from harness.engines.variables import variables


class _VLLM:
    """What is replaced in vLLM, by stand-ins that write down what they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vllm import _custom_ops
        from vllm.v1.worker.cpu_worker import CPUWorker

        self.ops, self.worker = _custom_ops, CPUWorker
        self.multiplied: list[tuple[Any, int]] = []
        monkeypatch.setattr(_custom_ops, "create_onednn_mm", self.create)
        monkeypatch.setattr(_custom_ops, "onednn_mm", self.multiply)
        monkeypatch.setattr(CPUWorker, "compile_or_warm_up_model", lambda worker: "times")

    def create(self, weight: Any, kept: int = 128) -> Any:
        return SimpleNamespace(shape=tuple(weight.shape))

    def multiply(self, product: Any, x: Any, bias: Any) -> None:
        assert x.shape[1] == product.shape[0]
        assert bias is None
        self.multiplied.append((product.shape, x.shape[0]))


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> _VLLM:
    return _VLLM(monkeypatch)


pytestmark = pytest.mark.needs_tool("vllm")


def test_a_worker_multiplies_once_with_each_shape_and_number_of_rows(
    vllm: _VLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv(matrix_products.ENABLED, "1")
    matrix_products.install()
    for shape in ((16, 48), (16, 16), (16, 48), (16, 48), (1024, 513)):
        vllm.ops.create_onednn_mm(torch.zeros(shape, dtype=torch.bfloat16), 32)
    assert vllm.worker.compile_or_warm_up_model(SimpleNamespace()) == "times"
    rows = range(1, matrix_products.MAX_ROWS + 1)
    assert vllm.multiplied == [(shape, n) for n in rows for shape in ((16, 48), (16, 16))], "the large one is not"


def test_a_start_does_not_wait_long_for_it(vllm: _VLLM) -> None:
    import torch

    product = SimpleNamespace(shape=(16, 48))
    assert matrix_products.prepare({(16, 48, torch.bfloat16): product}, seconds=0.0) == 1


def test_without_the_variable_nothing_is_replaced(vllm: _VLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(matrix_products.ENABLED, raising=False)
    before = vllm.ops.create_onednn_mm, vllm.worker.compile_or_warm_up_model
    matrix_products.install()
    assert (vllm.ops.create_onednn_mm, vllm.worker.compile_or_warm_up_model) == before


def test_what_is_replaced_is_what_vllm_calls() -> None:
    import inspect

    from vllm import _custom_ops
    from vllm.model_executor.layers import utils
    from vllm.v1.worker.cpu_worker import CPUWorker

    assert "ops.create_onednn_mm(" in inspect.getsource(utils.dispatch_cpu_unquantized_gemm)
    assert {"create_onednn_mm", "onednn_mm"} <= vars(_custom_ops).keys()
    assert "compile_or_warm_up_model" in vars(CPUWorker)


def test_engines_on_a_cpu_prepare_and_those_on_gpus_do_not() -> None:
    on_cpu = pair_settings("vllm", ("draft", "target"), dtype="float32", device="cpu")["draft"]
    on_gpu = pair_settings("vllm", ("draft", "target"), dtype="bfloat16", device="gpu")["draft"]
    assert variables(on_cpu)[matrix_products.ENABLED] == "1"
    assert variables(on_gpu)[matrix_products.ENABLED] is None, "unset, whatever the user's own environment says"
