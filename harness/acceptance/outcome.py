"""What a check measured, which goals that meets, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Value = float | int | str | None
Relation = Literal["<", "<=", ">=", "="]
Status = Literal["PASS", "FAIL", "SKIPPED"]


class NotApplicable(Exception):
    """A check found that it cannot be made here; the message completes "skipped because"."""


class CheckFailed(Exception):
    """A check could not be carried out for a reason that is a fault; the message says which."""


@dataclass(frozen=True)
class Goal:
    """The condition that a measured value has to meet."""

    relation: Relation
    bound: float | int | str

    def is_met(self, value: Value) -> bool:
        """Return whether a value meets the goal; one that is missing or not a number does not."""
        if self.relation == "=":
            return value == self.bound
        if not isinstance(value, int | float) or isinstance(self.bound, str):
            return False
        if self.relation == "<":
            return value < self.bound
        return value <= self.bound if self.relation == "<=" else value >= self.bound


@dataclass(frozen=True)
class Measurement:
    """One number or word that a check found."""

    name: str
    value: Value
    unit: str = ""
    goal: Goal | None = None
    """None: only reported."""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.goal.is_met(self.value)

    def data(self) -> dict[str, Any]:
        """The measurement as JSON data."""
        goal = None if self.goal is None else {"relation": self.goal.relation, "bound": self.goal.bound}
        return {"name": self.name, "value": self.value, "unit": self.unit, "goal": goal, "is_met": self.is_met}

    @classmethod
    def from_data(cls, record: dict[str, Any]) -> Measurement:
        """Read what `data` gave."""
        goal = record["goal"]
        return cls(record["name"], record["value"], record["unit"], goal and Goal(goal["relation"], goal["bound"]))

    def measured_text(self) -> str:
        """Name, value and unit for the table."""
        return f"{self.name} {_shown(self.value)}{self.unit and ' ' + self.unit}"

    def goal_text(self) -> str:
        """Name and condition for the table; empty without a goal."""
        if self.goal is None:
            return ""
        unit = "" if self.unit.startswith("of ") else self.unit  # "of 8" belongs to what was counted
        return f"{self.name} {self.goal.relation} {_shown(self.goal.bound)}{unit and ' ' + unit}"


@dataclass(frozen=True)
class Outcome:
    """The result of one check."""

    check: str
    status: Status
    reason: str = ""
    """Why it was skipped or failed; empty where the measurements say it."""
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0
    log: tuple[str, ...] = field(default=(), repr=False)
    """The last lines of the engines' output, for a failure."""

    def data(self) -> dict[str, Any]:
        """The outcome as JSON data."""
        return {
            "check": self.check,
            "status": self.status,
            "reason": self.reason or None,
            "seconds": round(self.seconds, 1),
            "measurements": [measurement.data() for measurement in self.measurements],
            "log": list(self.log),
        }


def judged(check: str, measurements: Sequence[Measurement], seconds: float) -> Outcome:
    """Return PASS if every goal is met, otherwise FAIL with the names of those that are not.

    Raises ValueError where nothing has a goal, because such a check could never fail.
    """
    if not any(measurement.goal for measurement in measurements):
        raise ValueError(f"the check {check} measured nothing that has a goal")
    missed = [measurement.name for measurement in measurements if measurement.is_met is False]
    reason = f"not met: {', '.join(missed)}" if missed else ""
    return Outcome(check, "FAIL" if missed else "PASS", reason, tuple(measurements), seconds)


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "unknown" if value is None else str(value)
