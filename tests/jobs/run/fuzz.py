"""Damage files of a run folder at random, and see what their readers make of it.

    python -m tests.jobs.run.fuzz FOLDER --number 10000 --seed 1 --loads 200

Every mutated file must be named, or be read with the content that it had; nothing else may be read, and nothing may
raise an error that is not one line. Prints a table by kind of file.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from jobs.after.grading import grade
from jobs.run import own_files, shared_jobs, submissions, trace_files
from jobs.run.digest import FileDamaged, say_once
from jobs.run.endings import granted_retries, read_endings
from jobs.run.files import append_record
from jobs.run.folder import RunFolder
from jobs.run.grades import GradesError, grade_files, read_grades
from jobs.run.journal import Journal, parse_journal, read_journal, trace_from_dict
from jobs.run.journal_writer import JournalWriter
from jobs.run.records import counting_records
from jobs.run.shared_jobs import SharedJob
from jobs.run.spec import Attempt, EngineSpec
from jobs.run.state import read_state
from jobs.run.submissions import Submission
from jobs.watch.progress import Follower
from jobs.watch.recent import Recent
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from warehouse.database import reader
from warehouse.load import load_run

OUTCOMES = ("named", "harmless", "silently wrong", "traceback")
KINDS = (
    "spec.json", "problems", "shards", "journal", "trace file", "grades", "second grades", "candidate grades", "scores",
    "submissions", "shared jobs", "retries",
)  # fmt: skip
_APPENDED = frozenset({"journal", "submissions", "shared jobs", "retries"})
"""Files that end where their writer was killed: what a shorter one holds was once all of it."""
_NOT_LOADED = _APPENDED
_COLUMNS = [name for name in trace_files.TRACES.names if name not in own_files.ENDINGS]
_TABLES = ("sample", "step", "candidate", "call", "grade", "second_grade", "problem", "step_score")


class Messages(logging.Handler):
    """The warnings that readers log."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@dataclass
class Corpus:
    """A run folder with a file of every kind, and another run's files of the same kinds."""

    run: RunFolder
    files: dict[str, Path]
    others: dict[str, bytes]
    """The other run's file of each kind; both runs have the same sample ids."""


def corpus(folder: Path) -> Corpus:
    """Make a run, half of it finished and half interrupted, and another one that differs in its engine alone."""
    run, other = (_made(folder / name, dtype) for name, dtype in (("a", "auto"), ("b", "float16")))
    files = _files(run)
    return Corpus(run, files, {kind: path.read_bytes() for kind, path in _files(other).items()})


def _made(folder: Path, dtype: str) -> RunFolder:
    run = plan(folder, samples=2, shards=2, engine=EngineSpec("scripted", dtype=dtype))
    for shard in (0, 1):
        run_shard(str(run.path), shard)
    _interrupt(run, run.trace_files()[1])
    grade(run, workers=1)
    [graded] = run.grades_dir.glob("*.parquet")
    rows, metadata = trace_files.read_rows(graded), {trace_files.RUN_KEY: run.spec().run_id}
    trace_files.write_table(run.second_grades_dir / graded.name, trace_files.GRADES, rows, metadata)
    keys = [{**row, "step_index": 0, "candidate_index": 1, "scorer": "s", "score": 0.5} for row in rows]
    trace_files.write_table(
        run.candidate_grades_dir / graded.name, trace_files.CANDIDATE_GRADES, _of(keys, "CANDIDATE_GRADES"), metadata
    )
    trace_files.write_table(run.scores_dir / "s.parquet", trace_files.SCORES, _of(keys, "SCORES"), metadata)
    for number in range(3):
        submissions.record(run, Submission(number, f"{run.path.name}.{number}", [[0], [1]], 1.0 * number))
        shared_jobs.record(run, SharedJob(f"shared{number}", [run.path.name], f"shared{number}.finalize"))
        granted = {"granted_at": 1.0, "samples": [rows[number]["sample_id"]]}
        append_record(run.retries_path, granted, run.spec().run_id)
    shared_jobs.leave(run, "shared0")
    return run


def _of(rows: Iterable[dict[str, Any]], schema: str) -> list[dict[str, Any]]:
    names = getattr(trace_files, schema).names
    return [{name: row[name] for name in names} for row in rows]


def _interrupt(run: RunFolder, trace_file: Path) -> None:
    """Turn a trace file back into the journal of a worker that was killed: some samples ended, some have steps."""
    rows = trace_files.read_rows(trace_file)
    attempt = Attempt(trace_file.stem, run.path.name, 1, "node", 1, 0.0, None)
    trace_file.unlink()
    writer = JournalWriter(run.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
    for number, row in enumerate(rows):
        trace = trace_from_dict(row)
        steps, calls, trace.steps, trace.calls = trace.steps, trace.calls, [], []
        writer.start(replace(trace, stop_reason=None))
        for place, step in enumerate(steps):
            trace.steps.append(step)
            trace.calls += [call for call in calls if call.step == place]
            writer.step(trace, step)
        if number % 3:
            writer.end(trace)
    writer.close()


def _files(run: RunFolder) -> dict[str, Path]:
    folders = (
        run.journal_dir, run.trace_files_dir, run.grades_dir, run.second_grades_dir, run.candidate_grades_dir,
        run.scores_dir,
    )  # fmt: skip
    listed = [next(iter(sorted(folder.iterdir()))) for folder in folders]
    appended = [run.submissions_path, run.path / "shared_jobs.jsonl", run.retries_path]
    return dict(zip(KINDS, [run.spec_path, run.problems_path, run.shards_path, *listed, *appended], strict=True))


def decoded(run: RunFolder, kind: str, path: Path) -> Any:
    """What the readers of a kind of file return."""
    if kind == "spec.json":
        return run.spec()
    if kind == "problems":
        return run.problems()
    if kind == "shards":
        return run.shards(), run.assignment(), run.shard(0), run.units_by_shard().to_pylist()
    if kind == "journal":
        return _decoded_journal(run, path)
    if kind == "trace file":
        ended = sorted(read_endings(run, whole=False).finished.to_pylist())
        return list(counting_records(run, _COLUMNS)), ended, sorted(read_state(run).finished)
    if kind == "grades":
        return [read_grades(file) for file in grade_files(run.grades_dir)]
    if kind == "submissions":
        return submissions.read(run)
    if kind == "shared jobs":
        return [*shared_jobs.read(run).values(), *shared_jobs.left(run)]
    if kind == "retries":
        return list(granted_retries(run).elements())  # in the order of the records
    return own_files.rows(path, own_files.run_ids(run))


def _decoded_journal(run: RunFolder, path: Path) -> Any:
    Follower(run).poll()
    Recent().add_journal(path.read_bytes(), 0)
    read_endings(run, whole=False)
    state, ended = read_state(run), sorted(read_endings(run).finished.to_pylist())
    assert ended == sorted(state.finished)
    journal = read_journal(path)
    return _content(journal) if own_files.is_own_journal(path, journal.attempt, own_files.run_ids(run)) else {}


def _content(journal: Journal) -> dict[str, Any]:
    traces = {**journal.finished, **journal.unfinished}
    return {sample: asdict(trace) for sample, trace in traces.items()}


def _is_part(kind: str, found: Any, whole: Any) -> bool:
    """Whether everything that was read is in the original, so that damage took something away and added nothing."""
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
    """What a file that is appended to held after each of its lines."""
    path = corpus.files[kind]
    if kind != "journal":
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [_content(parse_journal(path, lines[:end])) for end in range(len(lines))]


Mutation = Callable[[random.Random, bytes, bytes], bytes]


def flip(rng: random.Random, content: bytes, _: bytes) -> bytes:
    changed = bytearray(content)
    bit = rng.randrange(8 * len(changed))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def overwrite(rng: random.Random, content: bytes, _: bytes) -> bytes:
    place = rng.randrange(len(content))
    new = rng.randbytes(rng.randint(1, 64))
    return content[:place] + new + content[place + len(new) :]


def truncate(rng: random.Random, content: bytes, _: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def insert(rng: random.Random, content: bytes, _: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice((b"\n", b"\0" * 9, b"{}", b"[1]\n", rng.randbytes(5))) + content[place:]


def cut_out(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 1 + len(content) // 4) :]


def repeat(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 1 + len(content) // 4))
    return content[:end] + content[start:end] + content[end:]


def zero(rng: random.Random, content: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 4096))
    return content[:start] + b"\0" * (end - start) + content[end:]


def swap(_: random.Random, __: bytes, other: bytes) -> bytes:
    return other


def splice(rng: random.Random, content: bytes, other: bytes) -> bytes:
    place = rng.randrange(min(len(content), len(other)))
    return content[:place] + other[place:]


def change_json(rng: random.Random, content: bytes, _: bytes) -> bytes:
    """Change one value, name or structure in a line of JSON, or in the whole file."""
    is_file = content.startswith(b"{\n")
    lines = [content] if is_file else content.split(b"\n")
    number = rng.choice([i for i, line in enumerate(lines) if line.startswith(b"{")])
    record = orjson.loads(lines[number])
    _change(rng, record)
    lines[number] = orjson.dumps(record, option=orjson.OPT_INDENT_2 if is_file else 0)
    return b"\n".join(lines)


def _change(rng: random.Random, record: Any) -> None:
    container, key = record, rng.choice(list(record))
    while isinstance(container[key], dict | list) and container[key] and rng.random() < 0.8:
        container = container[key]
        key = rng.choice(list(container) if isinstance(container, dict) else range(len(container)))
    how, value = rng.randrange(4), container[key]
    if how == 0 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif how == 1:
        del container[key]
    elif how == 2 and isinstance(value, int | float):
        container[key] = value + 1
    else:
        container[key] = rng.choice([None, [], {}, "", [[value]], "x", -1, 1e300, True, {"a": value}])


MUTATIONS: tuple[Mutation, ...] = (flip, flip, overwrite, truncate, insert, cut_out, repeat, zero, swap, splice)


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
        """A mutation's name, and the file's content after it."""
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
        """Mutate a file of a kind, and return the outcome."""
        path, (name, changed) = self.corpus.files[kind], self.mutated(kind)
        say_once.cache_clear()
        self.messages.texts.clear()
        logger = logging.getLogger("jobs.run.digest")
        logger.addHandler(self.messages)
        path.write_bytes(changed)
        try:
            outcome = (read or self.outcome)(kind)
        except (FileDamaged, GradesError) as error:
            outcome = "named" if self._names(path, [str(error)]) else "traceback"
        except Exception:  # noqa: BLE001 whatever a reader raises is what this looks for
            outcome = "traceback"
            self.failures.append(f"{kind}, {name}: {traceback.format_exc()}")
        finally:
            path.write_bytes(self.contents[kind])
            logger.removeHandler(self.messages)
        if outcome == "silently wrong":
            self.failures.append(f"{kind}, {name}: silently wrong")
        return outcome

    def outcome(self, kind: str) -> str:
        """Read a mutated file."""
        path, whole = self.corpus.files[kind], self.decoded[kind]
        found = decoded(self.corpus.run, kind, path)
        if found == whole:
            return "named" if self.messages.texts else "harmless"
        if self._names(path, self.messages.texts):
            return "named" if _is_part(kind, found, whole) else "silently wrong"
        is_earlier = found in self.earlier[kind] if kind == "journal" else found == whole[: len(found)]
        return "harmless" if kind in _APPENDED and is_earlier else "silently wrong"

    def loaded(self, kind: str) -> str:
        """Load the run with a mutated file into a new warehouse."""
        rows, names = self.rows_loaded()
        if rows == self.rows_of_whole:
            return "named" if names else "harmless"
        return "named" if names else "silently wrong"

    def rows_loaded(self) -> tuple[dict[str, list[Any]], list[str]]:
        """The rows of the warehouse after a load, and what the load has named."""
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

    @staticmethod
    def _names(path: Path, texts: Iterable[str]) -> bool:
        return any((path.name in text or path.parent.name in text) and "\n" not in text for text in texts)


def table(counts: Counter[tuple[str, str]]) -> str:
    """Outcomes by kind of file."""
    lines = [f"{'':18}" + "".join(f"{outcome:>16}" for outcome in OUTCOMES)]
    lines += [f"{kind:18}" + "".join(f"{counts[kind, outcome]:16}" for outcome in OUTCOMES) for kind in KINDS]
    totals = [sum(counts[kind, outcome] for kind in KINDS) for outcome in OUTCOMES]
    return "\n".join([*lines, f"{'all':18}" + "".join(f"{total:16}" for total in totals)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    fuzz = Fuzz(corpus(arguments.folder), arguments.seed)
    print(f"{arguments.number} mutated files, seed {arguments.seed}\n{table(fuzz.read(arguments.number))}")
    if arguments.loads:
        print(f"\n{arguments.loads} loads into a warehouse\n{table(fuzz.load(arguments.loads))}")
    print("\n".join(sorted(set(fuzz.failures))[:20]))


if __name__ == "__main__":
    main()
