"""One benchmark item.

A problem is plain data. It is read once, at plan time, and copied into the run folder, so a worker needs no network.
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
    """`<dataset>/<row>`, stable across machines."""
    dataset: str
    text: str
    """The question as the model sees it, without instructions."""
    answer: str
    """The gold answer as the benchmark gives it; the letter of the right option for kind `choice`."""
    kind: Kind = "math"
    answers: tuple[str, ...] = ()
    """Parts that are all required, in any order, where the gold answer has several; otherwise empty."""
    alternatives: tuple[str, ...] = ()
    """Gold answers of which any is right; otherwise empty."""
    choices: tuple[str, ...] = ()
    """Option texts in the order in which the model sees them (A, B, …); only for kind `choice`."""
    level: str | None = None
    subject: str | None = None
    family: str | None = None
    """The template, passage or question that several problems come from. None: the problem stands alone."""
    unit: str | None = None
    """The unit of the answer, which is not part of its text."""
    tolerance: float | None = None
    """Absolute error that the benchmark allows."""
    beginning: str = ""
    """Reasoning that the reply begins with and no model of the run has written; empty for every benchmark."""

    @property
    def content_hash(self) -> str:
        """16 hex digits over everything that a model or a grader sees: id, dataset, level, subject, family left out."""
        content = {k: v for k, v in asdict(self).items() if k not in _NOT_CONTENT}
        if not self.beginning:  # the benchmarks' hashes are of their problems without one
            del content["beginning"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DatasetOrigin:
    """Where the problems of an own dataset, which is not among the known ones, are from and how they were read."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    source: str
    """`file <path>`, or `hub <id>@<commit>, <configuration>, <split>` with the commit that the revision named."""
    content: str
    """Hash of all problems in order (`dataset_hash`), those that a run leaves out included."""
    title: str | None = None
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    """The column of each field that has another name; for `choices` it may be one for each option."""
    answer_rule: str = "text"
    """How the gold answer stands in its column (harness.problems.own_problems)."""
    shuffle: bool = False
    """Whether the order of options depends on the seed."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The problems of a dataset, the name that runs have it under, and its source."""

    name: str
    problems: list[Problem]
    source: str
    origin: DatasetOrigin | None = None
    """Where an own dataset is from; None: one of the known names."""
    notices: tuple[str, ...] = ()
    """Warnings for the user, one line each."""
    is_training: bool = False
    """Whether it is training data, so that no number of a run on it is a result."""


def filled(text: str) -> str:
    """Return a text. Raises ValueError where it is empty."""
    if not text.strip():
        raise ValueError("is empty")
    return text


def dataset_hash(problems: list[Problem]) -> str:
    """Return 16 hex digits over the contents of the problems in their order."""
    return hashlib.sha256("".join(p.content_hash for p in problems).encode()).hexdigest()[:16]
