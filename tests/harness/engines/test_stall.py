"""When an engine counts as stalled, by a clock that the test sets."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from harness.engines import stall
from harness.engines.stall import StallClock
from harness.launch import main as launch


class Time:
    """A clock that the test sets, and looks at the engine once per second."""

    def __init__(self, limit: float) -> None:
        self.seconds = 1000.0
        self.clock = StallClock(limit, lambda: self.seconds)

    def pass_by(self, seconds: int, num_unfinished: int, *, works_every: int | None = None) -> str | None:
        """Return what the last of the looks found."""
        found = None
        for second in range(1, seconds + 1):
            if works_every and second % works_every == 0:
                self.clock.note_work()
            self.seconds += 1
            found = self.clock.stalled(num_unfinished)
        return found


def test_an_engine_that_does_nothing_for_the_limit_while_requests_are_unfinished_is_stalled() -> None:
    time = Time(1800)
    assert time.pass_by(1800, 12) is None, "the first look only finds the requests"
    assert time.pass_by(1, 12) == "no output for 1,800 s with 12 requests unfinished"
    assert time.pass_by(1, 1) == "no output for 1,800 s with 1 request unfinished"


def test_an_engine_without_requests_is_never_stalled() -> None:
    assert Time(10).pass_by(100_000, 0) is None


def test_waiting_between_two_runs_does_not_count_for_the_next_request() -> None:
    time = Time(10)
    time.pass_by(1000, 0)
    assert time.pass_by(10, 1) is None
    assert time.pass_by(1, 1) is not None


def test_work_in_every_limit_keeps_an_engine_alive_however_long_its_requests_take() -> None:
    time = Time(10)
    assert time.pass_by(99_999, 300, works_every=9) is None
    assert time.pass_by(9, 300) is None
    assert time.pass_by(1, 300) is not None


def test_a_limit_of_zero_is_none() -> None:
    assert Time(0).pass_by(100_000, 5) is None


@pytest.mark.parametrize("suspended_seconds", [3600, 30 * 86400])
def test_time_in_which_the_worker_itself_was_suspended_does_not_count(suspended_seconds: int) -> None:
    time = Time(1800)
    time.pass_by(60, 5)
    time.seconds += suspended_seconds
    assert time.pass_by(60, 5) is None
    assert time.pass_by(1800, 5) is not None


@pytest.mark.parametrize(("text", "seconds"), [(None, 1800), ("", 1800), ("0", 0), ("7200", 7200), (" 2.5 ", 2.5)])
def test_the_environment_sets_the_limit(text: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(stall.LIMIT, raising=False)
    if text is not None:
        monkeypatch.setenv(stall.LIMIT, text)
    assert stall.limit_seconds() == seconds


@pytest.mark.parametrize("text", ["half an hour", "-1", "nan", "inf", "30m"])
def test_any_other_limit_is_refused_in_one_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stall.LIMIT, text)
    with pytest.raises(ValueError, match=rf"^{stall.LIMIT}={text}: expected a number of seconds, or 0 [^\n]*$"):
        stall.limit_seconds()


def test_a_launch_with_a_wrong_limit_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(stall.LIMIT, "soon")
    flags = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--dry-run"]
    result = CliRunner().invoke(launch, flags)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {stall.LIMIT}=soon: expected a number of seconds")
    assert result.stderr.count("\n") == 1
