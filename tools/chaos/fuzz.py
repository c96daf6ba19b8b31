"""Damage files of a run folder at random, and check how their readers react.

    python -m tools.chaos.fuzz FOLDER --number 10000 --seed 1 --loads 200

For every mutated file, readers must either name the file or read its original content. They must not read different
content, and an error must be one line. Prints tables by kind of file for the functions that read it, for loads into a
warehouse and for commands. The output of a command may change only if a line names the file or the run.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from jobs.run import retries, submissions, trace_files
from jobs.run.derived import GradesError, grade_files, read_grades
from jobs.run.endings import read_endings, read_state
from jobs.run.files import FileDamaged, say_once
from jobs.run.folder import RunFolder
from jobs.run.journal import Journal, is_own_journal, parse_journal, read_journal
from jobs.run.trace_files import counting_records
from jobs.watch.follow import Follower, Pace
from tests.jobs.run.corpus import KINDS, Corpus, corpus
from tools.chaos.mutations import MUTATIONS, change_json
from warehouse.database import reader
from warehouse.loading.runs import load_run

OUTCOMES = ("named", "harmless", "silently wrong", "traceback")
_APPENDED = frozenset({"journal", "events"})
"""Kinds of append-only files, for which a truncated file is a valid earlier state."""
_NOT_LOADED = _APPENDED
COMMANDS = {
    "status": ("jobs.__main__", "status", "RUN"),
    "status --json": ("jobs.__main__", "status", "--json", "RUN"),
    "list": ("jobs.__main__", "list", "RUNS"),
    "logs": ("jobs.__main__", "logs", "RUN"),
    "cancel": ("jobs.__main__", "cancel", "RUN"),
    "resume": ("jobs.__main__", "resume", "RUN"),
    "retry-failed": ("jobs.__main__", "retry-failed", "RUN"),
    "worker": ("jobs.__main__", "worker", "RUN", "1"),
    "target-logprobs": ("jobs.__main__", "target-logprobs", "RUN"),
    "probe": ("jobs.__main__", "probe", "RUN", "--dry-run"),
    "lossless": ("jobs.__main__", "lossless", "RUN", "RUN"),
    "regrade --versions": ("grading.regrade", "--versions", "RUN"),
    "regrade --diff": ("grading.regrade", "--diff", "--old", "3", "--new", "3", "RUN"),
}
"""Commands that read a run folder, as module and arguments; warehouse commands read the loaded data."""
_REFUSED = 2
_VARIES = re.compile(r"[\d.]+( s| min| h)?|\s+")
"""Output that may differ between two executions of a command: numbers, times and padding."""
_COLUMNS = [name for name in trace_files.TRACES.names if name not in trace_files.ENDINGS]
_TABLES = ("sample", "step", "candidate", "call", "grade", "problem", "step_score")


class Messages(logging.Handler):
    """The warnings that readers log."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def decoded(run: RunFolder, kind: str, path: Path) -> Any:
    """Return the content that the readers of one kind of file read."""
    if kind == "spec.json":
        return run.spec()
    if kind == "problems":
        return run.problems()
    if kind == "plan":
        return run.shards(), run.assignment(), run.shard(0), run.units_by_shard().to_pylist()
    if kind == "journal":
        return _decoded_journal(run, path)
    if kind == "trace file":
        ended = sorted(read_endings(run, whole=False).finished.to_pylist())
        return list(counting_records(run, _COLUMNS)), ended, sorted(read_state(run).finished)
    if kind == "grades":
        return [read_grades(file) for file in grade_files(run)]
    if kind == "events":
        run.spec(), run.num_shards()  # reads these first, because the events contain their digests
        for read in (submissions.read, submissions.left, retries.granted):
            read(run)
        kinds = ("submission", "left", "retries")
        return sorted((event for kind in kinds for event in run.events(kind)), key=lambda event: float(event["at"]))
    return trace_files.read_rows(path)


def _decoded_journal(run: RunFolder, path: Path) -> Any:
    Follower(run).poll()
    Pace().add_journal(path.read_bytes())
    read_endings(run, whole=False)
    state, ended = read_state(run), sorted(read_endings(run).finished.to_pylist())
    assert ended == sorted(state.finished)
    journal = read_journal(path)
    return _content(journal) if is_own_journal(path, journal.attempt, run.ids()) else {}


def _content(journal: Journal) -> dict[str, Any]:
    traces = {**journal.finished, **journal.unfinished}
    return {sample: asdict(trace) for sample, trace in traces.items()}


def _is_part(kind: str, found: Any, whole: Any) -> bool:
    """Return whether everything that was read is in the original content, i.e. the damage removed content but added
    none.
    """
    if kind == "journal":
        return all(sample in whole and _is_earlier(trace, whole[sample]) for sample, trace in found.items())
    if kind == "trace file":
        return all(row in whole[0] for row in found[0])
    return kind not in _APPENDED or all(record in whole for record in found)


def _is_earlier(trace: dict[str, Any], whole: dict[str, Any]) -> bool:
    steps, calls = len(trace["steps"]), len(trace["calls"])
    if trace["stop_reason"] is not None:
        return trace == whole
    ends = ("steps", "calls", "stop_reason", "error", "latency_seconds", "num_attempts")
    is_same = all(trace[name] == whole[name] for name in trace if name not in ends)
    return is_same and trace["steps"] == whole["steps"][:steps] and trace["calls"] == whole["calls"][:calls]


def earlier_contents(corpus: Corpus, kind: str) -> list[Any]:
    """Return the contents that a journal had before each of its lines was written; empty for other kinds."""
    path = corpus.files[kind]
    if kind != "journal":
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [_content(parse_journal(path, lines[:end])) for end in range(len(lines))]


class Fuzz:
    """Mutates one file at a time, reads the run, and puts the file back."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.corpus, self.rng = corpus, random.Random(seed)
        self.contents = {kind: path.read_bytes() for kind, path in corpus.files.items()}
        self.decoded = {kind: decoded(corpus.run, kind, path) for kind, path in corpus.files.items()}
        self.earlier = {kind: earlier_contents(corpus, kind) for kind in _APPENDED}
        self.messages = Messages()
        self.failures: list[str] = []

    def mutated(self, kind: str) -> tuple[str, bytes]:
        """Return the name of a random mutation, and the mutated content."""
        content = self.contents[kind]
        mutations = (
            (*MUTATIONS, change_json, change_json) if self.corpus.files[kind].suffix[:5] == ".json" else MUTATIONS
        )
        while True:
            mutation = self.rng.choice(mutations)
            changed = mutation(self.rng, content, self.corpus.others[kind])
            if changed != content:
                return mutation.__name__, changed

    def once(self, kind: str, read: Callable[[str], str] | None = None) -> str:
        """Mutate a file of a kind, read it, and restore it; return the outcome."""
        path, (name, changed) = self.corpus.files[kind], self.mutated(kind)
        say_once.cache_clear()
        self.messages.texts.clear()
        logger = logging.getLogger("jobs.run.files")
        logger.addHandler(self.messages)
        path.write_bytes(changed)
        try:
            outcome = (read or self.outcome)(kind)
        except (FileDamaged, GradesError) as error:
            outcome = "named" if self._names(path, [str(error)]) else "traceback"
        except Exception:  # noqa: BLE001 this looks for any exception that a reader raises
            outcome = "traceback"
            self.failures.append(f"{kind}, {name}: {traceback.format_exc()}")
        finally:
            path.write_bytes(self.contents[kind])
            logger.removeHandler(self.messages)
        if outcome == "silently wrong":
            self.failures.append(f"{kind}, {name}: silently wrong")
        return outcome

    def outcome(self, kind: str) -> str:
        """Read a mutated file; return the outcome."""
        path, whole = self.corpus.files[kind], self.decoded[kind]
        found = decoded(self.corpus.run, kind, path)
        if found == whole:
            return "named" if self.messages.texts else "harmless"
        if self._names(path, self.messages.texts):
            return "named" if _is_part(kind, found, whole) else "silently wrong"
        is_earlier = found in self.earlier[kind] if kind == "journal" else found == whole[: len(found)]
        return "harmless" if kind in _APPENDED and is_earlier else "silently wrong"

    def loaded(self, kind: str) -> str:
        """Load the run with a mutated file into a new warehouse; return the outcome."""
        rows, names = self.rows_loaded()
        if rows == self.rows_of_whole:
            return "named" if names else "harmless"
        return "named" if names else "silently wrong"

    def rows_loaded(self) -> tuple[dict[str, list[Any]], list[str]]:
        """Load the run; return the rows of the warehouse, and the files or the error that the load reported."""
        database = self.corpus.run.path.parent / "fuzz.duckdb"
        database.unlink(missing_ok=True)
        try:
            report = load_run(self.corpus.run, database)
            with reader(database) as connection:
                rows = {
                    table: connection.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall() for table in _TABLES
                }
            return rows, [file.name for file in report.skipped]
        except Exception as error:
            if type(error).__name__ != "RunUnreadable":
                raise
            return {}, [str(error)]

    def load(self, number: int) -> Counter[tuple[str, str]]:
        """Mutate files that the warehouse reads, load each time, and count outcomes by kind."""
        self.rows_of_whole, _ = self.rows_loaded()
        kinds = [kind for kind in KINDS if kind not in _NOT_LOADED]
        return Counter((kinds[i % len(kinds)], self.once(kinds[i % len(kinds)], self.loaded)) for i in range(number))

    def read(self, number: int) -> Counter[tuple[str, str]]:
        """Mutate files of all kinds in turn, and count outcomes by kind."""
        return Counter((KINDS[i % len(KINDS)], self.once(KINDS[i % len(KINDS)])) for i in range(number))

    def printed(self, kind: str) -> str:
        """Run a random command on a copy of the runs with a mutated file; return the outcome."""
        command = self.rng.choice(list(COMMANDS))
        code, output = self.output_of(command)
        path = self.corpus.files[kind]
        lines = [*output.splitlines(), *self.messages.texts]
        if self._names(path, lines) or "damaged" in output or code == _REFUSED:
            return "named"
        if (code, _VARIES.sub("#", output)) == self.outputs[command]:
            return "harmless"
        self.failures.append(f"{command}, {kind}: exit code {code}\n{output}")
        return "silently wrong"

    def output_of(self, command: str) -> tuple[int, str]:
        """Run a command in this process on a copy of the runs; return its exit code and output."""
        runs = self.corpus.run.path.parent
        copy = runs.with_name("copied")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(runs, copy)
        module, *arguments = COMMANDS[command]
        places = {"RUN": str(copy / self.corpus.run.path.relative_to(runs)), "RUNS": str(copy)}
        done = CliRunner().invoke(import_module(module).main, [places.get(word, word) for word in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def command(self, number: int) -> Counter[tuple[str, str]]:
        """Mutate files of all kinds in turn, run a command each time, and count outcomes by kind."""
        whole = {command: self.output_of(command) for command in COMMANDS}
        self.outputs = {name: (code, _VARIES.sub("#", output)) for name, (code, output) in whole.items()}
        return Counter((KINDS[i % len(KINDS)], self.once(KINDS[i % len(KINDS)], self.printed)) for i in range(number))

    @staticmethod
    def _names(path: Path, texts: Iterable[str]) -> bool:
        return any((path.name in text or path.parent.name in text) and "\n" not in text for text in texts)


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return a table of the outcomes by kind of file."""
    lines = [f"{'':18}" + "".join(f"{outcome:>16}" for outcome in OUTCOMES)]
    lines += [f"{kind:18}" + "".join(f"{counts[kind, outcome]:16}" for outcome in OUTCOMES) for kind in KINDS]
    totals = [sum(counts[kind, outcome] for kind in KINDS) for outcome in OUTCOMES]
    return "\n".join([*lines, f"{'all':18}" + "".join(f"{total:16}" for total in totals)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    fuzz = Fuzz(corpus(arguments.folder), arguments.seed)
    print(f"{arguments.number} mutated files, seed {arguments.seed}\n{table(fuzz.read(arguments.number))}")
    if arguments.loads:
        print(f"\n{arguments.loads} loads into a warehouse\n{table(fuzz.load(arguments.loads))}")
    if arguments.commands:
        print(f"\n{arguments.commands} commands\n{table(fuzz.command(arguments.commands))}")
    print("\n".join(sorted(set(fuzz.failures))[:20]))


if __name__ == "__main__":
    main()
