"""The table `[nightly]` of a suite's file: how a night recovers, and who is told of its verdict.

[nightly]
recoveries = 5                                  # how often the night submits what is unfinished again, per run
since = 2026-05-07                              # nights before it are no baseline: a change after them was intended
notify-on = ["FAIL", "INCONCLUSIVE"]            # by default every verdict
notify-command = ["mail", "-s", "{verdict} {night}", "me@example.org"]   # the page on its standard input
notify-url = "https://hooks.example.org/night"  # is sent JSON: verdict, night, text (the page)
notify-url-file = "~/.config/night-url"         # instead, where the URL is a secret
notify-seconds = 30                             # limit of each

[nightly.slurm]                                 # options of sbatch for the verdict job alone
mail-type = "FAIL"
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Told = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE", "NO VERDICT"]
ALL_TOLD: tuple[Told, ...] = ("PASS", "WARN", "FAIL", "INCONCLUSIVE", "NO VERDICT")


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class NightSettings(BaseModel):
    """How a night recovers, and who is told of its verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))

    recoveries: Annotated[int, Field(ge=0, le=100)] = 5
    """Most times that the night itself submits what is unfinished of a run again."""
    notify_on: Annotated[tuple[Told, ...], BeforeValidator(_as_tuple)] = ALL_TOLD
    """Verdicts that are told."""
    notify_command: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    """A command and its arguments, run without a shell; `{verdict}`, `{night}` and `{page}` are replaced."""
    notify_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    notify_url_file: Path | None = None
    """A file that holds the URL, which may be a secret."""
    notify_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Limit of the command, and of the request."""
    since: date | None = None
    """Nights before this date are ignored, because a change after them was intended."""
    slurm: Mapping[str, str | int | bool] = {}
    """Options of sbatch for the verdict job alone."""


def from_table(table: Any) -> NightSettings:
    """Validate the table `[nightly]`. Raises ValueError with one line."""
    if not isinstance(table, dict):
        raise ValueError("[nightly] must be a table")
    named = {str(key).replace("_", "-"): value for key, value in table.items()}
    try:
        return NightSettings.model_validate(named)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(name.replace("_", "-") for name in NightSettings.model_fields)
            raise ValueError(f"[nightly]: unknown key {place}; the keys are {known}") from error
        given = "" if place.startswith("notify-url") else f", not {first['input']!r}"  # a URL may be a secret
        raise ValueError(f"[nightly]: {place}: {first['msg']}{given}") from error
