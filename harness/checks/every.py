"""All checks of one machine at once; the slow ones wait for processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from harness.checks import data, hardware, model_files, packages, storage, tokenizers
from harness.checks.check import Check, Question, failure, warning
from harness.engine import Role

Group = Callable[[], Iterable[Check]]


def checks(question: Question, further: dict[str, Group] | None = None) -> list[Check]:
    """What was found, in a fixed order, `further` groups last. A check that breaks is a failure, not a traceback."""
    groups: dict[str, Group] = {
        "python": lambda: [packages.check_python()],
        "packages": packages.check_packages,
        "installation": lambda: [packages.check_installation()],
        "engine": lambda: packages.check_engine(question),
        "torch companions": lambda: packages.check_companions(question),
        "devices": lambda: hardware.check_devices(question),
        "models": lambda: _models(question),
        "dataset": lambda: data.check_dataset(question),
        "output": lambda: storage.check_storage(question),
        **(further or {}),
    }
    pool = ThreadPoolExecutor(len(groups))
    asked = {name: pool.submit(_all, group) for name, group in groups.items()}
    pool.shutdown(wait=False)
    wait(asked.values(), timeout=question.limit_seconds)
    return [check for name, future in asked.items() for check in _outcome(name, future, question)]


def _outcome(name: str, future: Future[list[Check]], question: Question) -> list[Check]:
    if not future.done():
        return [warning(name, f"not looked at within {question.limit_seconds:.0f} s: {packages.SLOW}")]
    broken = future.exception()
    return [failure(name, f"the check itself broke: {broken!r}")] if broken else future.result()


def _all(group: Group) -> list[Check]:
    return list(group())


def _models(question: Question) -> Iterator[Check]:
    folders: dict[Role, Path] = {}
    weights: dict[Role, int] = {}
    for role, name in question.models.items():
        found = model_files.find(role, name, question)
        yield from found.checks
        if found.folder is not None:
            folders[role], weights[role] = found.folder, found.weight_bytes
    if question.selection_adapter is not None:
        yield model_files.check_adapter(question.selection_adapter)
    room = hardware.check_room(weights, question)
    if room is not None:
        yield room
    yield from tokenizers.check_tokenizers(folders, question)
