"""What a snapshot of numbers holds: rows as JSON, without names that the machine or the day gives, compared as numbers.

A value is written with all of its digits. It is compared to nine of them, because processors differ in the last ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

MOST_ROWS = 40
"""Relations with more rows than this are told by their sums over each run."""
_OF_THE_MACHINE = {
    "git_commit", "git_commits", "code_hash", "codes", "code_archive", "other_codes", "versions", "hardware", "pid",
    "processor", "processors", "grading_seconds", "grader_version", "folder", "path", "size", "mtime", "digest",
    "bytes", "graded_at", "loaded_at", "prompt_date",
}  # fmt: skip
"""Columns and keys that hold facts of the machine, the code or the moment."""
_HASH = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{8,64}\b")
_ATTEMPT = re.compile(r"\d{8}T\d{6}\.\d+-node1-\d+")

Row = Mapping[str, Any]


class Names:
    """Replaces ids by what stands for them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        longest_first = sorted(names, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first)))

    def replaced(self, value: Any) -> Any:
        """Return a value as JSON can hold it, with the names of runs and samples, and without what is NULL."""
        match value:
            case str():
                known = self._known.sub(lambda found: self._names[found[0]], value)
                return _HASH.sub("HASH", _ATTEMPT.sub("ATTEMPT", known))
            case Mapping():
                kept = {str(key): self.replaced(one) for key, one in value.items() if key not in _OF_THE_MACHINE}
                return {self.replaced(key): one for key, one in kept.items() if one is not None}
            case Sequence() if not isinstance(value, bytes):
                return [self.replaced(one) for one in value]
            case float() if not math.isfinite(value):
                return str(value)
            case Decimal():
                return float(value)
            case datetime():
                return None  # the corpus's clock goes on with each command
            case date():
                return value.isoformat()
            case bytes():
                return hashlib.sha256(value).hexdigest()[:12]
        return value

    def rows(self, found: Iterable[Row]) -> list[Row]:
        """Return the rows in an order of their own; many of them by their sums over each run."""
        ordered = self.rows_in_full(found)
        return ordered if len(ordered) <= MOST_ROWS else _summed(ordered)

    def rows_in_full(self, found: Iterable[Row]) -> list[Row]:
        return sorted((self.replaced(row) for row in found), key=lambda row: json.dumps(row, sort_keys=True))


def _summed(found: Sequence[Row]) -> list[Row]:
    """Return a row for each run: the number of its rows, the sum of each number, and a digest of all else."""
    by_run: defaultdict[str, list[Row]] = defaultdict(list)
    for row in found:
        by_run[str(row.get("run_id", "every run"))].append(row)
    summed: list[Row] = []
    for run_id, own in sorted(by_run.items()):
        columns: defaultdict[str, list[Any]] = defaultdict(list)
        for row in own:
            for name, value in row.items():
                if name != "run_id":
                    columns[name].append(value)
        totals = {name: _total(values) for name, values in sorted(columns.items())}
        summed.append({"run_id": run_id, "rows": len(own), **totals})
    return summed


def _total(values: Sequence[Any]) -> Any:
    if all(isinstance(value, int | float) for value in values):
        return {"values": len(values), "sum": math.fsum(values)}
    texts = sorted(json.dumps(value, sort_keys=True) for value in values)
    if any("." in text and isinstance(value, list | dict) for text, value in zip(texts, values, strict=True)):
        numbers = [number for value in values for number in _numbers(value)]
        return {"values": len(values), "sum": math.fsum(numbers)}
    return {"values": len(values), "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, dict):
        return [number for one in value.values() for number in _numbers(one)]
    return [number for one in value for number in _numbers(one)] if isinstance(value, list) else []


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {_rows(one)}" for key, one in value.items()) + "\n}\n"
    return _rows(value) + "\n"


def _rows(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in value) + "\n]"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
        return are_numbers and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    return type(one) is type(other) and bool(one == other)


class Numbers(SingleFileSnapshotExtension):
    """A file of JSON for each test."""

    file_extension = "json"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: Any, **_: Any) -> str:
        return _written(data)

    def matches(self, *, serialized_data: Any, snapshot_data: Any) -> bool:
        return _are_alike(json.loads(serialized_data), json.loads(snapshot_data))


class Screen(SingleFileSnapshotExtension):
    """A file of text for each test."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT
