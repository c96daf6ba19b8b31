"""What JSON holds, and how records are read back from files with pydantic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, ConfigDict

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value as JSON holds it."""
NO_UNKNOWN_FIELDS = ConfigDict(extra="forbid")
"""Configuration of a record's dataclass: a field that this version does not know is an error."""
LogProbability = Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]
"""In nats; JSON has no infinity, so a journal holds null for the log-probability of an impossible token."""
