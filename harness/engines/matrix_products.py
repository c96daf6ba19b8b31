"""Prepares the matrix products of a small model on a CPU while its engine starts, not in the first samples.

vLLM 0.31 and 0.32 multiply with oneDNN on CPUs, which generates code for every shape of weights and every number of
rows (the new tokens of a batch) that it sees for the first time. A step of a chain has another number of tokens nearly
every time. That cost the bundled target 8 to 10 ms of the 27 of a prompt of 94 tokens, in each run anew. Where vLLM
compiles nothing, it has no warm-up of its own.

Layers of one shape share the code. Only matrices without a bias are prepared, and small ones: large ones take much
longer to multiply than their code to generate. Processors with AMX multiply small matrices in another way, and
prepare nothing.
"""

from __future__ import annotations

import os
import time
from typing import Any

ENABLED = "HARNESS_ENGINE_PREPARED_PRODUCTS"
"""Environment variable: set to 1 in the processes of an engine on a CPU that compiles nothing."""
MAX_WEIGHTS = 512 * 1024
"""The largest matrix that is prepared, in elements."""
MAX_ROWS = 160
"""oneDNN keeps the code of 1,024 products (ONEDNN_PRIMITIVE_CACHE_CAPACITY); a model has about five shapes."""
_MAX_SECONDS = 3.0
"""After this time a start goes on with what has been prepared, the smallest numbers of rows first."""


def install() -> None:
    """Change how a worker of this process starts, where the environment says so; before vLLM loads a model."""
    if os.environ.get(ENABLED) != "1":
        return
    from vllm import _custom_ops
    from vllm.v1.worker.cpu_worker import CPUWorker

    create = getattr(_custom_ops, "create_onednn_mm", None)
    warm_up = getattr(CPUWorker, "compile_or_warm_up_model", None)
    if create is None or warm_up is None:  # another version of vLLM, which starts as it does
        return
    products: dict[tuple[Any, ...], Any] = {}

    def create_onednn_mm(weight: Any, *arguments: Any, **named: Any) -> Any:
        product = create(weight, *arguments, **named)
        if weight.numel() <= MAX_WEIGHTS:
            products.setdefault((*weight.shape, weight.dtype), product)
        return product

    def compile_or_warm_up_model(worker: Any) -> Any:
        times = warm_up(worker)
        prepare(products)
        return times

    _custom_ops.create_onednn_mm = create_onednn_mm
    CPUWorker.compile_or_warm_up_model = compile_or_warm_up_model


def prepare(products: dict[tuple[Any, ...], Any], seconds: float = _MAX_SECONDS) -> int:
    """Multiply once with each number of rows, and return the largest that was reached.

    `products`: vLLM's handlers by (columns of the input, columns of the output, torch's dtype).
    """
    import torch
    from vllm import _custom_ops

    end = time.monotonic() + seconds
    for rows in range(1, MAX_ROWS + 1):
        for (columns, _, dtype), product in products.items():
            _custom_ops.onednn_mm(product, torch.zeros(rows, columns, dtype=dtype), None)
        if time.monotonic() > end:
            return rows
    return MAX_ROWS
