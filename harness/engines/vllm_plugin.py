"""What this project does in every process of an engine: vLLM loads `install` as a plug-in there."""

from __future__ import annotations

from harness.engines import idle_workers, matrix_products, parent_watch


def install() -> None:
    """Watch the worker that started the engine; on a CPU, wait for batches politely and prepare matrix products.

    vLLM also calls it in the worker itself, where nothing is changed: an engine of the user's own may run there.
    """
    parent_watch.install()
    if parent_watch.worker_above() is not None:
        idle_workers.install()
        matrix_products.install()
