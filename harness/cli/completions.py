"""What the shell offers for a flag that takes a name or a file: the known names that begin so, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import click
from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _methods(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from harness.methods import METHODS, plugins

    return _beginning(incomplete, (*METHODS, *(plugin.name for plugin in plugins.all_registered())))


def _datasets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from harness.problems.benchmarks import DATASETS

    return _beginning(incomplete, DATASETS)


def _models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from harness.weights import models

    return _beginning(incomplete, (*models.BUNDLED, *(model.name for model in models.MODELS.values())))


COMPLETIONS: Mapping[str, Completion] = {
    "method": _methods,
    "dataset": _datasets,
    "draft": _models,
    "target": _models,
}
"""By the name of the flag; what it imports is imported when the shell asks."""


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    found = [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]
