"""A run folder that others may write to: no command runs what they put there, sends a key there, or shows their codes.

Each attack changes a copy of a run, and every command that opens a run folder meets it as a user who launched nothing.
"""

from __future__ import annotations

import importlib
import os
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.methods import build, plugins
from harness.weights.tokenizer import HFTokenizer
from jobs.run import submissions, trace_files, trust
from jobs.run.folder import RunFolder, run_folder
from jobs.run.submissions import Submission
from jobs.work.engine_settings import engine_needs
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import serving
from tests.jobs.runs import jobs
from tests.jobs.slurm.fake import FakeSlurm
from tests.own_methods import confident, no_methods, write_method
from warehouse.database import writer

__all__ = ["no_methods"]
pytestmark = pytest.mark.usefixtures("no_methods")

SMALL = ["--dataset", "demo", "--limit", "2", "--samples", "1", "--cluster", "debug"]
SECRET, MARK = "the-key-of-this-user", "mark-of-the-attack"
SEQUENCE = "\x1b]0;title\x07\x1b[2J\u202e"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "status": ("jobs", "status", "RUN"),
    "status --json": ("jobs", "status", "RUN", "--json"),
    "list": ("jobs", "list", "FOLDER"),
    "logs": ("jobs", "logs", "RUN"),
    "show": ("jobs", "show", "RUN"),
    "cancel": ("jobs", "cancel", "RUN"),
    "resume": ("jobs", "resume", "RUN"),
    "retry-failed": ("jobs", "retry-failed", "RUN"),
    "worker": ("jobs", "worker", "RUN", "0"),
    "finalize": ("jobs", "finalize", "RUN"),
    "probe": ("jobs", "probe", "RUN", "--cluster", "debug"),
    "target-logprobs": ("jobs", "target-logprobs", "RUN"),
    "lossless": ("jobs", "lossless", "RUN", "RUN"),
    "regrade": ("grading.regrade", "RUN"),
    "candidates": ("warehouse.candidates", "RUN"),
    "load": ("warehouse.load", "RUN"),
    "report": ("warehouse.report", "RUN", "-o", "FOLDER/report.html"),
    "compare": ("warehouse.compare", "RUN", "RUN"),
    "trace": ("warehouse.trace", "--database", "FOLDER/warehouse.duckdb", "NAME", "demo/0", "0"),
}


def main_of(module: str) -> Any:
    found = importlib.import_module(module)
    return (importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found).main


def launched(folder: Path, *flags: str) -> Path:
    done = CliRunner().invoke(main_of("harness.launch"), [*SMALL, *flags, "--output", str(folder)])
    assert done.exit_code == 0, done.output
    [run] = folder.glob("demo-*")
    return run


def killed(run: Path) -> Path:
    """What is left of a run whose worker died before its first sample ended."""
    shutil.rmtree(run / "traces")
    (run / "traces").mkdir()
    return run


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Runs of somebody else: finished, killed, of a method or grader of their own, and with models on servers."""
    place = tmp_path_factory.mktemp("theirs")
    scripted = ("--method", "speccot", "--engine", "scripted")
    method = write_method(place, f"{confident()}\n\nimport os\nos.environ['MARK'] = {MARK!r}\n")
    save_tokenizer(place / "tokenizer")
    with serving("vllm", HFTokenizer(str(place / "tokenizer"))) as server:
        flags = ["--method", "specreason", "--token-budget", "100"]
        for role in ("draft", "target"):
            flags += [f"--{role}", server.url, f"--{role}.tokenizer", str(place / "tokenizer")]
        answered = launched(place / "answered", *flags)
    grader = place / "short.py"
    grader.write_text(
        f"import os\nos.environ['MARK'] = {MARK!r}\n\n\ndef grade(text, gold, problem):\n    return True\n"
    )
    found = {
        "grader": launched(place / "grader", *scripted, "--grader", f"{grader}:grade"),
        "finished": launched(place / "finished", *scripted),
        "method": killed(launched(place / "method", "--method", f"{method}:Confident", "--engine", "scripted")),
        "answered": answered,
    }
    for name, whole in (("killed", found["finished"]), ("served", answered)):
        found[name] = killed(Path(shutil.copytree(whole, place / name / whole.name)))
    plugins.registered.clear()
    del os.environ["MARK"]
    return found


class Victim:
    """A user who works on a copy of a run, and what others got out of it."""

    def __init__(self, base: Path, place: Path, slurm: FakeSlurm) -> None:
        shutil.copytree(base, place / "runs" / base.name)
        self.run, self.slurm, self.place = RunFolder(place / "runs" / base.name), slurm, place
        self.keys: list[str] = []
        self.outside = place / "outside"
        self.outside.write_text("precious\n")

    def submitted(self, options: Mapping[str, Any], name: str = "") -> None:
        """Record a job of earlier, as anybody can who may write to the folder."""
        name = name or submissions.job_name(self.run, 0)
        submissions.record(self.run, Submission(0, name, [[0]], 0.0, dict(options)))

    def linked(self, path: Path) -> None:
        """Put a link to a file of this user in the place of a file of the run."""
        if path.exists():
            shutil.copy(path, self.outside)
            path.unlink()
        path.symlink_to(self.outside)

    def tries(self, command: str) -> str:
        """Return what a command does: `safe` where it does nothing that it should not."""
        module, *words = COMMANDS[command]
        places = {"RUN": str(self.run.path), "FOLDER": str(self.run.path.parent), "NAME": self.run.path.name}
        arguments = [places.get(word, word.replace("FOLDER", places["FOLDER"])) for word in words]
        before, num_calls = self.outside.read_bytes(), len(self.slurm.calls())
        done = CliRunner().invoke(main_of(module), arguments)
        script = self.place / "submitted"
        if os.environ.pop("MARK", None) or (script.exists() and MARK in script.read_text()):
            return "RUNS IT"
        if self.keys:
            return "SENDS THE KEY"
        if any(MARK in call for call in self.slurm.calls()[num_calls:] if call.startswith("scancel")):
            return "CANCELS ANOTHER'S"
        if self.outside.read_bytes() != before:
            return "WRITES ELSEWHERE"
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            return f"TRACEBACK {type(done.exception).__name__}"
        return "RAW CODES" if any(code in done.output for code in ("\x1b", "\x07", "\u202e")) else "safe"


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """The address of a server of the attacker's, and the keys that it got."""
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("Authorization", "a request"))
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", keys
        server.shutdown()


def _evil_name(victim: Victim) -> None:
    renamed = victim.run.path.with_name(f"demo-{SEQUENCE}[red]")
    victim.run = RunFolder(victim.run.path.rename(renamed))


def _evil_texts(victim: Victim) -> None:
    logs = victim.run.logs_dir / "jobs"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "7-0_0_log.err").write_text(f"ValueError: {SEQUENCE}\n== failed: {SEQUENCE}[/x]\n")
    (victim.run.journal_dir / f"{SEQUENCE}-deal0-shard0.jsonl").write_text(f"{SEQUENCE}\n")
    victim.run.append("retries", samples=[SEQUENCE])
    victim.submitted({"partition": SEQUENCE})


def _huge(victim: Victim) -> None:
    with victim.run.events_path.open("a") as file:
        file.write("x" * 5_000_000 + "\n")
    victim.submitted({"comment": MARK + "x" * 1_000_000})


def _evil_plan(victim: Victim) -> None:
    rows = trace_files.read_rows(victim.run.plan_path)
    rows[0]["shard"] = 77
    metadata = {**trace_files.read_metadata(victim.run.plan_path), "shards": "2000000000"}
    trace_files.write_table(victim.run.plan_path, trace_files.SHARDS, rows, metadata)


ATTACKS: Mapping[str, tuple[str, Callable[[Victim], None]]] = {
    "setup line": ("killed", lambda victim: victim.submitted({"setup": [f"touch {MARK}"]})),
    "another's job": ("killed", lambda victim: victim.submitted({}, f"{MARK}.0")),
    "method": ("method", lambda victim: None),
    "grader": ("grader", lambda victim: None),
    "grader, not graded": ("grader", lambda victim: shutil.rmtree(victim.run.path / "derived")),
    "server": ("served", lambda victim: None),
    "server, finished": ("answered", lambda victim: None),
    "linked events": ("killed", lambda victim: victim.linked(victim.run.events_path)),
    "linked journal": ("killed", lambda victim: victim.linked(victim.run.journal_dir / "x-deal0-shard0.jsonl")),
    "linked lock": ("killed", lambda victim: victim.linked(victim.run.locks_dir / "submission.lock")),
    "codes in names": ("finished", _evil_name),
    "codes in texts": ("killed", _evil_texts),
    "long lines": ("killed", _huge),
    "retries of no samples": ("killed", lambda victim: victim.run.append("retries", samples=[[1]])),
    "shards of no samples": ("killed", _evil_plan),
    "a pipe as a journal": ("killed", lambda victim: os.mkfifo(victim.run.journal_dir / "x-deal0-shard0.jsonl")),
    "a job of no time": (
        "killed",
        lambda victim: submissions.record(victim.run, Submission(0, submissions.job_name(victim.run, 0), [[0]], 1e300)),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_does_what_a_hostile_folder_wants(
    attack: str,
    bases: Mapping[str, Path],
    listener: tuple[str, list[str]],
    tmp_path: Path,
    slurm: FakeSlurm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HARNESS_TARGET_API_KEY", SECRET)
    monkeypatch.setenv("HARNESS_DRAFT_API_KEY", SECRET)
    monkeypatch.setattr("harness.engines.served.connection.MOST_ATTEMPTS", 1)
    slurm.prints(squeue="", sacct="", scancel="", srun="", scontrol="MaxArraySize = 1001")
    base, strike = ATTACKS[attack]
    found = {}
    for number, command in enumerate(COMMANDS):
        place = tmp_path / str(number)
        victim = Victim(bases[base], place, slurm)
        slurm.answers(sbatch=f"for last; do :; done; cat $last >> {place}/submitted; echo Submitted batch job 7")
        strike(victim)
        if attack.startswith("server"):
            address, victim.keys = listener
            victim.keys.clear()
            victim.run.append("servers", addresses=dict.fromkeys(("draft", "target"), address))
        found[command] = victim.tries(command)
        plugins.registered.clear()
        monkeypatch.delenv("HARNESS_TRUSTED", raising=False)
    assert set(found.values()) == {"safe"}, found


@pytest.fixture
def taking(tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm that takes every job, for a user who has accepted nothing; returns where the batch scripts are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(trust.VARIABLE, raising=False)
    script = tmp_path / "submitted"
    slurm.prints(squeue="", sacct="", srun="", scontrol="MaxArraySize = 1001")
    slurm.answers(sbatch=f"for last; do :; done; cat $last >> {script}; echo Submitted batch job 7")
    return script


@pytest.fixture
def victim(bases: Mapping[str, Path], tmp_path: Path, slurm: FakeSlurm, taking: Path) -> Victim:
    """One with a run whose worker was killed."""
    return Victim(bases["killed"], tmp_path, slurm)


@pytest.mark.parametrize(
    "options",
    [{"python": "/tmp/python3"}, {"srun": ["--task-prolog=x"]}, {"chdir": "/tmp/x"}, {"finalize": {"mem": 1}}],
)
def test_recorded_options_are_used_by_whoever_accepted_them(
    options: Mapping[str, Any], victim: Victim, taking: Path
) -> None:
    victim.submitted(options)
    refused = jobs("resume", victim.run.path)
    assert (refused.exit_code, "--trust" in refused.output, taking.exists()) == (2, True, False)


def test_what_was_shown_is_accepted_once_for_the_runs_of_a_folder(
    victim: Victim, slurm: FakeSlurm, taking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = RunFolder(victim.run.path.with_name("beside"))
    shutil.copytree(victim.run.path, beside.path)

    def resumed(run: RunFolder, *flags: str) -> int:
        monkeypatch.delenv("HARNESS_TRUSTED", raising=False)
        done = jobs("resume", run.path, *flags)
        return done.exit_code

    victim.submitted({"setup": [MARK]})
    assert resumed(victim.run, "--trust") == 2, "shown for the first time"
    assert not taking.exists()
    assert resumed(victim.run, "--trust") == 0
    assert MARK in taking.read_text()
    assert f"export {trust.VARIABLE}=" in taking.read_text(), "what its jobs may use"
    of_original = submissions.job_name(victim.run, 0)
    submissions.record(beside, Submission(0, of_original, [[0]], 0.0, {"setup": [MARK]}))
    slurm.prints(squeue=f"{of_original}|0|7|7|RUNNING|n1|None")
    taking.unlink()
    assert resumed(beside) == 0
    assert taking.exists(), "a copy does not wait for the original's jobs"
    submissions.record(beside, Submission(1, "a.1", [[0]], 0.0, {"setup": [f"{MARK} changed"]}))
    assert resumed(beside) == 2


@pytest.mark.parametrize("name", ["a\n#SBATCH --wrap=x", "it's", 'a"b', "`x`", "a\\b", "a\x1b[2J", "a\u202eb", "$(x)"])
def test_a_folder_whose_name_would_be_more_than_a_name_is_no_run(
    name: str, bases: Mapping[str, Path], tmp_path: Path, taking: Path
) -> None:
    base = bases["killed"]
    evil = tmp_path / f"demo-speccot-{name}-{base.name.rpartition('-')[2]}"
    shutil.copytree(base, evil)
    assert run_folder(tmp_path, RunFolder(base).spec()).path.name != evil.name, "a launch does not go on with it"
    (tmp_path / "link").symlink_to(evil)
    for path in (evil, tmp_path / "link"):
        done = jobs("resume", path)
        assert (done.exit_code, len(done.output.splitlines()), taking.exists()) == (1, 1, False), done.output
    done = jobs("list", tmp_path)
    assert done.exit_code == 0
    assert not set("\n\x1b\u202e") & set(name) or name not in done.output


def test_the_batch_script_is_read_where_nobody_else_can_write(victim: Victim, tmp_path: Path, slurm: FakeSlurm) -> None:
    seen = tmp_path / "seen"
    what = f'for last; do :; done; echo "$last" >> {seen}; stat -c %a "${{last%/*}}" >> {seen}'
    slurm.answers(sbatch=f"{what}; echo Submitted batch job 7")
    victim.submitted({})
    done = jobs("resume", victim.run.path)
    assert done.exit_code == 0, done.output
    lines = seen.read_text().splitlines()
    assert lines[1::2] == ["700", "700"], "the job, and the one after it"
    for script in map(Path, lines[::2]):
        assert not script.is_relative_to(victim.run.path)
        assert not script.parent.exists()


@pytest.mark.parametrize(
    "options",
    [{"setup": ["x"], "srun": 5}, {"finalize": {"setup": 3}}, {"setup": [1]}, {"python": 3}, {"mem": {"a": 1}}],
)
def test_options_of_a_wrong_type_are_named_in_one_line(
    options: Mapping[str, Any], victim: Victim, taking: Path
) -> None:
    victim.submitted(options)
    for _ in ("shown", "accepted"):
        done = jobs("resume", victim.run.path, "--trust")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), done.output
    assert not taking.exists()


@pytest.mark.parametrize("command", ["worker", "resume", "probe", "target-logprobs"])
def test_arguments_of_vllm_are_used_by_whoever_gave_or_accepted_them(
    command: str, tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.jobs.test_hostile_folder.SMALL", [*SMALL[:-1], "slurm"])
    slurm.prints(squeue="", srun="", scontrol="MaxArraySize = 1001", sbatch="Submitted batch job 7")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    given = '{"reasoning_parser_plugin": "/shared/evil.py"}'
    words = ("--method", "speccot", "--engine", "vllm", "--target.engine", f"structured_outputs_config={given}")
    run = RunFolder(launched(tmp_path / "runs", *words))
    settings = run.spec().settings
    trust.require(run, trust.arguments(settings))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("HARNESS_TRUSTED", raising=False)
    with pytest.raises(trust.NotTrusted, match="arguments of the target's vLLM"):
        engine_needs(run, run.spec(), build("speccot", {}), run.problems())
    asked = [str(run.path) if word == "RUN" else word for word in COMMANDS[command][1:]]
    done = CliRunner().invoke(main_of("jobs"), asked)
    assert done.exit_code == 2
    assert "/shared/evil.py" in done.output, "what would be accepted is shown"
    assert "--trust" in done.output


def test_the_code_of_a_method_is_shown_as_text_without_codes(
    bases: Mapping[str, Path], tmp_path: Path, slurm: FakeSlurm, taking: Path
) -> None:
    victim = Victim(bases["method"], tmp_path, slurm)
    [archive] = victim.run.path.glob("method-*.zip")
    with zipfile.ZipFile(archive) as before:
        entries = {name: before.read(name) for name in before.namelist()}
    with zipfile.ZipFile(archive, "w") as after:
        for name, content in entries.items():
            after.writestr(name, content + (f"# {SEQUENCE}\n".encode() if name.endswith(".py") else b""))
    done = jobs("worker", victim.run.path, "0")
    assert done.exit_code == 2
    assert "class Confident(Method):" in done.output
    assert r"# \x1b]0;title" in done.output
    assert not any(code in done.output for code in SEQUENCE if not code.isprintable())


@pytest.mark.parametrize(
    "prepared",
    [
        "CREATE MACRO main.regexp_extract(a, b, c) AS (SELECT content FROM read_text('{secret}'))",
        "CREATE OR REPLACE MACRO exact_sum(x) AS (SELECT content FROM read_text('{secret}'))",
        "CREATE MACRO duckdb_functions() AS TABLE (SELECT content FROM read_text('{secret}'))",
        "CREATE VIEW main.read_parquet AS SELECT content FROM read_text('{secret}')",
        "CREATE OR REPLACE VIEW sample_grade AS SELECT content AS run_id FROM read_text('{secret}')",
        "CREATE TABLE further (text VARCHAR DEFAULT current_user)",
    ],
    ids=lambda sql: sql[:35],
)
def test_a_prepared_database_is_not_loaded_into(
    prepared: str, bases: Mapping[str, Path], tmp_path: Path, slurm: FakeSlurm
) -> None:
    victim = Victim(bases["finished"], tmp_path, slurm)
    database = victim.run.path.parent / "warehouse.duckdb"
    with writer(database) as connection:
        connection.execute(prepared.format(secret=victim.outside))
    before = database.read_bytes()
    done = jobs("finalize", victim.run.path)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert database.read_bytes() == before


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_is_written_through_a_link_in_the_place_of_the_database(
    is_there: bool, bases: Mapping[str, Path], tmp_path: Path, slurm: FakeSlurm
) -> None:
    victim = Victim(bases["finished"], tmp_path, slurm)
    own = tmp_path / "own" / "own.duckdb"
    if is_there:
        with writer(own):
            pass
    before = own.read_bytes() if is_there else None
    link = victim.run.path.parent / "warehouse.duckdb"
    link.symlink_to(own)
    for module, *words in (("jobs", "finalize"), ("warehouse.load",), ("warehouse.load", "--rebuild")):
        done = CliRunner().invoke(main_of(module), [*words, str(victim.run.path)])
        assert done.exit_code != 0, done.output
        assert isinstance(done.exception, SystemExit)
    assert (own.read_bytes() if own.exists() else None) == before
    assert link.is_symlink()


def test_no_options_are_shown_as_others_are() -> None:
    [one], [other] = (trust.options(given) for given in ({"a = 1\nb": 2}, {"a": 1, "b": 2}))
    assert one.content != other.content
