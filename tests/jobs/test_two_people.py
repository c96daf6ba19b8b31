"""Two people in one folder: whoever shares it may do everything, and anybody else reads in one line what is missing."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.people import Answer, Commons, Person, commons

GROUP = 54300
LAUNCH = (
    *("--method", "speccot", "--dataset", "demo", "--engine", "scripted"),
    *("--limit", "2", "--samples", "1", "--cluster", "debug"),
)


@pytest.fixture(scope="module")
def place() -> Iterator[Commons]:
    with commons() as shared:
        yield shared


@pytest.fixture(scope="module")
def alice(place: Commons) -> Person:
    return Person(54301, 54301, (GROUP,), place)


@pytest.fixture(scope="module")
def bob(place: Commons) -> Person:
    return Person(54302, 54302, (GROUP,), place)


def launched(person: Person, folder: Path, umask: int) -> Path:
    commands = [("harness.launch", *LAUNCH, "--output", folder, "--seed", seed) for seed in (0, 1)]
    for done in person.commands(*commands, umask=umask):
        assert done.exit_code == 0, done
    return sorted(folder.glob("demo-*"))[0]


def of_a_run(run: Path) -> list[tuple[object, ...]]:
    """Return commands that only read a run and its database, and after them those that write."""
    database = run.parent / "warehouse.duckdb"
    return [
        ("jobs.__main__", "status", run),
        ("jobs.__main__", "logs", run),
        ("warehouse.compare", *sorted(run.parent.glob("demo-*"))),
        ("warehouse.trace", "--database", database, run.name, "demo/0", "0"),
        ("warehouse.load", run),  # writes nothing where nothing is new
        ("jobs.__main__", "finalize", run),
        ("jobs.__main__", "retry-failed", run),
        ("warehouse.report.__main__", run, "-o", run.parent / "report.html"),
        ("harness.launch", *LAUNCH, "--output", run.parent, "--seed", "0"),
    ]


READING = 5
"""How many of them only read."""


def is_one_line(answer: Answer) -> bool:
    lines = answer.output.splitlines()
    return answer.exit_code == 2 and not answer.error and len(lines) == 1


def test_a_colleague_may_do_everything_in_a_folder_of_their_group(place: Commons, alice: Person, bob: Person) -> None:
    folder = place.shared_by(GROUP)
    run = launched(alice, folder, 0o002)
    by_alice = ("jobs.__main__", "finalize", run)  # with grades and a database that are Bob's by now
    for answer in [*bob.commands(*of_a_run(run)), *alice.commands(by_alice)]:
        assert (answer.exit_code, answer.error) == (0, ""), answer
    for path in [run.parent / "warehouse.duckdb", run, *run.rglob("*")]:
        found = path.lstat()
        assert found.st_gid == GROUP, path
        if not path.is_symlink():
            assert stat.S_IMODE(found.st_mode) & 0o060 == 0o060, path


@pytest.fixture(scope="module")
def readable(place: Commons, alice: Person) -> Path:
    """A run of Alice's that her group may read, beside others."""
    return launched(alice, place.shared_by(GROUP), 0o022)


def test_who_may_only_read_a_run_reads_whose_it_is(readable: Path, bob: Person) -> None:
    readable.parent.chmod(0o2750)
    answers = bob.commands(*of_a_run(readable))
    readable.parent.chmod(0o2770)
    assert [answer.exit_code for answer in answers[:READING]] == [0] * READING, answers
    for answer in answers[READING:]:
        assert is_one_line(answer), answer
        assert "Permission denied" in answer.output or "cannot write in" in answer.output
    finalized = answers[READING].output
    assert "compaction.lock: Permission denied; it belongs to user 54301, group 54300, mode 0644; you are" in finalized


def test_who_may_not_read_a_run_reads_whose_it_is(readable: Path, bob: Person) -> None:
    readable.chmod(0o700)
    of_its_files = [command for command in of_a_run(readable) if command[0] in ("jobs.__main__", "harness.launch")]
    answers = bob.commands(*of_its_files)
    for answer in answers:
        assert is_one_line(answer), answer
    assert f"Permission denied; {readable} belongs to user 54301, group 54300, mode 0700" in answers[0].output


def test_a_private_run_among_those_of_a_group_does_not_stop_the_others(readable: Path, bob: Person) -> None:
    readable.chmod(0o700)
    folder = readable.parent
    status, loaded = bob.commands(
        ("jobs.__main__", "status", *sorted(folder.glob("demo-*"))),
        ("warehouse.load", folder, "--database", bob.home / "warehouse.duckdb"),
    )
    assert (status.exit_code, loaded.exit_code) == (0, 0), (status, loaded)
    assert "2 of 2 samples finished" in status.output
    assert f"skipped: {readable}/events.jsonl: Permission denied" in status.output + loaded.output
