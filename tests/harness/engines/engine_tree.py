"""A worker with an engine of real processes in place of vLLM's: a core below it and two ranks below the core.

    python -m tests.harness.engines.engine_tree LOG

It prints how many processes it finds, and the ids of core and ranks. After a line on its standard input it ends the
engine and prints how many are left.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from harness.engines.processes import starting
from harness.engines.settings import EngineSettings
from harness.engines.vllm import variables


def core(pipe: Connection) -> None:
    for _ in range(2):
        multiprocessing.get_context("spawn").Process(target=rank, args=(pipe,)).start()
    rank(pipe)


def rank(pipe: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as one that waits inside native code
    pipe.send(os.getpid())
    time.sleep(600)


def main(log: str) -> None:
    with starting(Path(log), variables(EngineSettings())) as engine:
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        context.Process(target=core, args=(sender,)).start()
        pids = [receiver.recv() for _ in range(3)]
        engine.started()
    print(len(engine.find()), *pids, flush=True)
    if sys.stdin.readline():
        engine.kill(0.2)
        print(len(engine.find()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
