"""What an own dataset is said to be: by `--dataset FILE`, `--dataset hf:ORG/NAME`, or a TOML file beside the data.

Nothing is read here but that TOML file, so a launch knows in a moment whether what was asked for can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.cli.toml_file import read_toml
from harness.problems import own_rows
from harness.problems.benchmarks import DATASETS
from harness.problems.problem import Kind

AnswerRule = Literal["text", "integer", "boxed", "hashes", "index-from-0", "index-from-1"]
"""How the gold answer stands in its column: as a text or a number; as an integer, of which 027 and 27.0 are 27; in the
last `\\boxed` of a solution; behind `####` at the end of a solution; or as the index of the right option."""
HUB = "hf:"
REQUIRED = ("problem", "answer")
FIELDS = (*REQUIRED, "id", "choices", "answers", "alternatives", "level", "subject", "unit", "tolerance")
"""What a row may say of a problem; `harness.problems.problem.Problem` says what each is."""
VALID = f"a file ({', '.join((*own_rows.SUFFIXES, '.toml'))}) or {HUB}ORG/NAME[:CONFIG][@REVISION]"
_INDEXES = {"index-from-0", "index-from-1"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}")
_HUB_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.,+ -]+))?(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_COLUMN = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A dataset of the hub."""

    hub_id: str
    config: str | None = None
    revision: str | None = None
    """As it was asked for, such as a branch; None: the newest."""
    split: str = "test"

    @property
    def name(self) -> str:
        """The name of a run's dataset: what tells the hub's parts apart is in it."""
        parts = [self.hub_id.partition("/")[2], self.config, None if self.split == "test" else self.split]
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in parts if part))


@dataclass(frozen=True)
class OwnDataset:
    """A dataset that is not among the known ones."""

    name: str
    """The dataset of the run: a short name that is also part of run ids."""
    source: Path | HubSource
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    """The column of each field where it has another name; for `choices` also one column for each option."""
    kind: Kind | None = None
    """None: a row with choices is of kind `choice`, any other of kind `math`."""
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    """Whether the options of a problem are put into an order that depends on the seed, as GPQA's are."""
    count: int | None = None
    """The number of problems that there must be; None: any."""
    title: str | None = None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds a control character")
    return text


class _Described(BaseModel):
    """The keys of a TOML file that describes a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str | None = None
    hub: str | None = None
    split: str | None = None
    name: str | None = None
    title: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)] | None = None
    kind: Kind | None = None
    answer_rule: AnswerRule = "text"
    shuffle: bool = False
    count: Annotated[int, Field(ge=1)] | None = None
    columns: dict[str, _COLUMN | list[_COLUMN]] = {}


def is_own(dataset: str) -> bool:
    """Return whether the text of `--dataset` names a file or a dataset of the hub, rather than a known name."""
    is_file = "/" in dataset or Path(dataset).suffix.lower() in (*own_rows.SUFFIXES, ".toml")
    return dataset not in DATASETS and (dataset.startswith(HUB) or is_file)


def describe(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> OwnDataset:
    """Return what `--dataset`, `--split` and `--columns` say together. Raises ValueError with one line.

    Flags take precedence over the TOML file.
    """
    mapped = parse_columns(",".join(columns)) if columns else {}
    if dataset.startswith(HUB):
        source = _hub_source(dataset.removeprefix(HUB), split)
        return _checked(OwnDataset(source.name, source, mapped))
    if "://" in dataset:
        raise ValueError(f"--dataset {dataset}: an address; valid: {VALID}")
    path = Path(dataset)
    if path.suffix.lower() == ".toml":
        own_rows.check_exists(path)
        return _checked(_of_toml(path, split, mapped))
    if path.suffix.lower() not in own_rows.SUFFIXES:
        raise ValueError(f"--dataset {dataset}: unknown; valid: {VALID}, or a name of --list datasets")
    own_rows.check(path)
    if split is not None:
        raise ValueError(f"--split {split}: {path} is one file and has no splits; they are for {HUB}ORG/NAME")
    return _checked(OwnDataset(path.stem, path, mapped))


def parse_columns(text: str) -> dict[str, str | list[str]]:
    """Return the mapping of `problem=question,choices=a+b+c`. Raises ValueError."""
    mapped: dict[str, str | list[str]] = {}
    for item in text.split(","):
        name, equals, column = (part.strip() for part in item.partition("="))
        if not (name and equals and column):
            raise ValueError(f"--columns {text}: expected FIELD=COLUMN,FIELD=COLUMN, such as problem=question")
        if name in mapped:
            raise ValueError(f"--columns {text}: {name} is given twice")
        several = [part.strip() for part in column.split("+")]
        mapped[name] = several if name == "choices" and len(several) > 1 else column
    _check_columns(mapped, f"--columns {text}")
    return mapped


def _of_toml(path: Path, split: str | None, columns: Mapping[str, str | list[str]]) -> OwnDataset:
    try:
        described = _Described.model_validate(read_toml(path))
    except ValidationError as error:
        raise ValueError(f"{path}: {_one_line(error)}") from error
    _check_columns(described.columns, f"{path}: columns")
    if (described.file is None) == (described.hub is None):
        raise ValueError(f'{path}: say where the problems are: file = "my.jsonl" or hub = "org/name", one of them')
    source: Path | HubSource
    if described.hub is not None:
        source = _hub_source(described.hub.removeprefix(HUB), split or described.split, f"{path}: hub = ")
    else:
        source = path.parent / str(described.file)
        own_rows.check(source)
        if given := split or described.split:
            raise ValueError(f"{path}: split {given}: a file has no splits; they are for hub = ")
    if described.kind == "math" and (described.answer_rule in _INDEXES or described.shuffle):
        key = "shuffle" if described.shuffle else f"answer_rule {described.answer_rule}"
        raise ValueError(f"{path}: {key}: for choices, not for kind math")
    return OwnDataset(
        described.name or path.stem,
        source,
        {**described.columns, **columns},
        described.kind,
        described.answer_rule,
        described.shuffle,
        described.count,
        described.title,
    )


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][:2])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; valid: {', '.join(_Described.model_fields)}"
    if place == "answer_rule":
        return f"answer_rule {first['input']!r}: unknown; valid: {', '.join(get_args(AnswerRule))}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


def _hub_source(text: str, split: str | None, label: str = f"--dataset {HUB}") -> HubSource:
    match = _HUB_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{label}{text}: expected ORG/NAME[:CONFIG][@REVISION]")
    return HubSource(match["id"], match["config"], match["revision"], split or "test")


def _check_columns(columns: Mapping[str, object], label: str) -> None:
    for name, column in columns.items():
        if name not in FIELDS:
            raise ValueError(f"{label}: unknown field {name!r}; valid: {', '.join(FIELDS)}")
        if not isinstance(column, str) and name != "choices":
            raise ValueError(f"{label}: {name} is one column; only choices may be several")


def _checked(own: OwnDataset) -> OwnDataset:
    """Raise ValueError where the name cannot be that of a run's dataset."""
    if own.name in DATASETS:
        raise ValueError(
            f"--dataset: {own.name} is the name of a known dataset: rename the file, or say name = in a TOML file; "
            "for a copy of the known one give --data-dir"
        )
    if not _NAME.fullmatch(own.name):
        raise ValueError(
            f"--dataset: {own.name[:60]!r} cannot name a run's dataset (up to 48 letters, digits, _ . -, a letter or "
            "digit first): rename the file, or say name = in a TOML file"
        )
    return own
