"""A worker with an engine of real processes in place of vLLM's: a core below it and two ranks below the core.

    python -m tests.harness.engines.engine_tree LOG METHOD PLUGIN FORKS

starts them by the start method METHOD (spawn or fork). PLUGIN and FORKS say whether the parent watch is loaded as a
plug-in, once in a process and its forks as in vLLM, and whether it watches forks. The worker prints the ids of core and
ranks and whether each has the watching thread. A line on its standard input makes it end the core as vLLM does; it
then prints whether that cancelled its own task.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.engines import parent_watch, processes
from harness.engines.settings import EngineSettings
from harness.engines.variables import variables

_loaded = False
"""As in vllm.plugins: kept in a process that is forked, so plug-ins are not loaded there again."""


def load_plugins(wanted: bool) -> None:
    global _loaded  # noqa: PLW0603 - as vLLM's
    if not _loaded:
        _loaded = True
        if wanted:
            parent_watch.install()


def core(pipe: Connection, method: str, plugin: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    load_plugins(plugin)
    context: Any = multiprocessing.get_context(method)
    ranks = [context.Process(target=rank, args=(pipe, plugin), daemon=True) for _ in range(2)]
    for process in ranks:
        process.start()
    report(pipe)
    time.sleep(600)


def rank(pipe: Connection, plugin: bool) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    load_plugins(plugin)
    report(pipe)
    time.sleep(600)


def report(pipe: Connection) -> None:
    pipe.send((os.getpid(), any(thread.name == parent_watch.THREAD for thread in threading.enumerate())))


async def main(log: str, method: str, plugin: bool, forks: bool) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)  # as jobs.work.worker
    if not forks:
        parent_watch.watch_forks = lambda: None
    load_plugins(plugin)
    with processes.starting(Path(log), variables(EngineSettings())) as engine:
        chosen = os.environ["VLLM_WORKER_MULTIPROC_METHOD"] if method == "chosen" else method
        context: Any = multiprocessing.get_context(chosen)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=core, args=(sender, chosen, plugin))
        process.start()
        reports = [receiver.recv() for _ in range(3)]
        engine.started()
    core_first = sorted(reports, key=lambda pair: pair[0] != process.pid)
    print(chosen, *(f"{pid}:{int(watches)}" for pid, watches in core_first), len(engine.find()), flush=True)
    try:
        reader = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
        while not reader.done():
            if engine.has_lost_one():
                await asyncio.to_thread(engine.kill, 2.0)
            await asyncio.sleep(0.2)
        process.terminate()
        process.join()
        await asyncio.sleep(0.2)
        print("not cancelled", flush=True)
    except asyncio.CancelledError:
        print("CANCELLED", flush=True)
    finally:
        engine.kill()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], bool(int(sys.argv[3])), bool(int(sys.argv[4]))))
