"""Data classes for problems and datasets.

Problems are read once, at plan time, and copied into the run folder, so workers need no network access.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import ConfigDict

Kind = Literal["math", "choice"]
_NOT_CONTENT = {"id", "dataset", "level", "subject", "family"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One benchmark item with its gold answer."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    """`<dataset>/<row>` in benchmarks; in custom datasets the id in the row, otherwise `row/<row>`."""
    dataset: str
    text: str
    """The question as the model sees it, without instructions."""
    answer: str
    """The benchmark's gold answer; for kind `choice`, the letter of the correct option."""
    kind: Kind = "math"
    answers: tuple[str, ...] = ()
    """Parts of a gold answer with several parts; all are required, in any order."""
    alternatives: tuple[str, ...] = ()
    """Alternative gold answers; any one is correct."""
    choices: tuple[str, ...] = ()
    """Option texts in prompt order (A, B, …); only for kind `choice`."""
    level: str | None = None
    subject: str | None = None
    family: str | None = None
    """Template, passage or question shared by several problems. None: the problem is independent."""
    unit: str | None = None
    """Unit of the answer, not part of its text."""
    tolerance: float | None = None
    """Allowed absolute error."""
    beginning: str = ""
    """Start of the reply's reasoning, stored with the problem, not generated; empty in all benchmarks."""

    @property
    def content_hash(self) -> str:
        """Hash (16 hex digits) of what models and graders use: all but id, dataset, level, subject and family."""
        content = {k: v for k, v in asdict(self).items() if k not in _NOT_CONTENT}
        if not self.beginning:  # keeps the recorded hashes of the benchmarks
            del content["beginning"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DatasetOrigin:
    """Source of a custom dataset, and the settings with which it was read."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    source: str
    """`file <path>`, or `hub <id>@<commit>, <configuration>, <split>`."""
    content: str
    """Hash of all problems in order (`dataset_hash`), including problems skipped by the run."""
    title: str | None = None
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    """Column of each field, if its name differs from the field's; `choices` can have one column per option."""
    answer_rule: str = "text"
    """Format of the gold answer in its column (harness.problems.columns.AnswerRule)."""
    shuffle: bool = False
    """Whether options are shuffled by the seed."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The problems of a dataset, its name in runs, and its source."""

    name: str
    problems: list[Problem]
    source: str
    origin: DatasetOrigin | None = None
    """Origin of a custom dataset; None: a built-in dataset."""
    notices: tuple[str, ...] = ()
    """Warnings for the user, one line each."""
    is_training: bool = False
    """Whether it is training data; metrics on it must not be reported as benchmark results."""


def filled(text: str) -> str:
    """Return the string. Raises ValueError if it is blank."""
    if not text.strip():
        raise ValueError("is empty")
    return text


def dataset_hash(problems: list[Problem]) -> str:
    """Return a hash (16 hex digits) of the problems' contents in order."""
    return hashlib.sha256("".join(p.content_hash for p in problems).encode()).hexdigest()[:16]
