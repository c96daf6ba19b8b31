"""All checks of one machine, run concurrently; the slow ones wait for processes of their own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from harness.checks import machine, models
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.engine import Role

Group = Callable[[], Iterable[Check]]


def checks(question: Question, additional: dict[str, Group] | None = None) -> list[Check]:
    """Return all results in a fixed order, those of `additional` groups last.

    A check that raises an exception is a failure, not a traceback.
    """
    groups: dict[str, Group] = {
        "python": lambda: [ok("python", platform.python_version())],
        "packages": machine.check_packages,
        "engine": lambda: machine.check_engine(question),
        "devices": lambda: machine.check_devices(question),
        "driver": lambda: machine.check_driver(question),
        "same environment": lambda: machine.check_same_environment(question),
        "servers": lambda: models.check_servers(question),
        "models": lambda: _models(question),
        "speculation": lambda: models.check_speculation(question),
        "dataset": lambda: models.check_dataset(question),
        "output": lambda: machine.check_storage(question),
        **(additional or {}),
    }
    if not question.packages_are_here:  # the jobs do not use what is here
        del groups["packages"]
    pool = ThreadPoolExecutor(len(groups))
    futures = {name: pool.submit(lambda group: list(group()), group) for name, group in groups.items()}
    pool.shutdown(wait=False)
    wait(futures.values(), timeout=question.limit_seconds)
    return [check for name, future in futures.items() for check in _outcome(name, future, question)]


def _outcome(name: str, future: Future[list[Check]], question: Question) -> list[Check]:
    if not future.done():
        return [warning(name, f"not checked within {question.limit_seconds:.0f} s: {machine.SLOW}")]
    error = future.exception()
    return [failure(name, f"the check itself failed: {error!r}")] if error else future.result()


def _models(question: Question) -> Iterator[Check]:
    folders: dict[Role, Path] = {}
    for role, name in question.named.items():
        found, folder = models.find_model(role, name)
        yield from found
        if folder is not None:
            folders[role] = folder
    if question.launch.target.adapter is not None:
        yield models.check_adapter(question.launch.target.adapter)
    yield from models.check_tokenizers(folders, question)
