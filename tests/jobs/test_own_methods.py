"""Runs of a user's own method: its code travels with the run, is part of the recorded code, and may be gone later."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.launch import main as launch_command
from harness.methods import plugins
from harness.settings import layers
from harness.settings.launch_command import parsed_flags
from harness.settings.launch_settings import Launch
from jobs import suite
from jobs.run import codes, trace_files, trust
from jobs.run.folder import RunFolder, folder_name
from jobs.run.plan import plan
from jobs.run.spec import assign_to_shards, units
from jobs.submission import code_archive
from tests.jobs.runs import finished_ids, hashes, planned_ids
from tests.own_methods import confident, no_methods, write_method

__all__ = ["no_methods"]
pytestmark = pytest.mark.usefixtures("no_methods")

FLAGS: dict[str, Any] = {"dataset": "demo", "engine": "scripted", "limit": 3, "samples": 1}
CLASHING = confident().replace("threshold: float = parameter(-0.5", "temperature: float = parameter(0.25").replace(
    "self.threshold", "-1.0"
)  # fmt: skip
"""A method with a parameter that is called like a flag of the launcher."""


def launched(folder: Path, method: Path, *further: str) -> Result:
    flags = layers.arguments({"method": f"{method}:Confident", **FLAGS, "cluster": "debug", "output": str(folder)})
    return CliRunner().invoke(launch_command, [*flags, *further])


def created(folder: Path, method: Path) -> RunFolder:
    """A run that is planned and claimed, as a launch leaves it to its workers."""
    planned = plan(Launch.from_flags({**FLAGS, "method": f"{method}:Confident"}), "local")
    run = RunFolder(folder / planned.spec.run_id)
    run.create(planned.spec, planned.problems, assign_to_shards(units(planned.spec, planned.problems), 1))
    codes.claim(run)
    return run


REPAIR = confident().replace('target, "fallback"', 'target, "repair"')


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "registered", {})


def test_an_own_method_is_run_graded_recorded_and_later_read_without_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warehouse.database import reader, rows
    from warehouse.load import main as load

    method = write_method(tmp_path)
    result = launched(tmp_path / "runs", method, "--threshold", "-0.25")
    assert result.exit_code == 0, result.output
    [path] = (tmp_path / "runs").glob("demo-confident-*")
    run = RunFolder(path)
    spec = run.spec()
    assert spec.params == {"threshold": -0.25, "step_tokens": 512}
    assert spec.method_source is not None
    assert spec.method_source.reference == "confident.py:Confident"
    assert str(tmp_path) not in (path / "spec.json").read_text(), "where it lay is nobody's business"
    [record] = codes.read(run)
    assert "method/confident.py" in record.files
    method.unlink()
    forget(monkeypatch)
    assert folder_name(run.spec()) == path.name
    database = tmp_path / "again.duckdb"
    assert CliRunner().invoke(load, [str(path), "--database", str(database)]).exit_code == 0
    with reader(database) as connection:
        [row] = rows(connection, "SELECT method, method_source, method_code FROM run")
    assert list(row.values()) == ["confident", "confident.py:Confident", spec.method_source.code_hash]
    assert not plugins.registered, "reading a run runs none of its code"


def test_an_edited_method_goes_on_only_where_that_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = write_method(tmp_path)
    assert launched(tmp_path / "runs", method).exit_code == 0
    [path] = (tmp_path / "runs").glob("demo-confident-*")
    run = RunFolder(path)
    [trace_file] = run.trace_files()
    rows, metadata = trace_files.read_rows(trace_file), trace_files.read_metadata(trace_file)
    trace_files.write_table(trace_file, trace_files.TRACES, rows[:1], metadata)
    method.write_text(confident().replace("answered:", "answered and True:"))
    forget(monkeypatch)
    refused = launched(tmp_path / "runs", method)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert all(part in refused.stderr for part in ("method/confident.py", "--tag"))
    forget(monkeypatch)
    assert codes.method_of(run) is not None, "a resume takes the code that began it"
    assert codes.check(run) is None
    forget(monkeypatch)
    accepted = launched(tmp_path / "runs", method, "--accept-code-change")
    assert accepted.exit_code == 0, accepted.output
    assert finished_ids(run) == planned_ids(run)
    assert len(hashes(run)) == 2
    assert len(list(path.glob("method-*.zip"))) == 2
    forget(monkeypatch)
    plugin = codes.method_of(run)
    assert plugin is not None
    assert plugin.source.files["confident.py"] == method.read_bytes(), "from now on the later code"
    assert launched(tmp_path / "runs", method, "--tag", "edited", "--dry-run").exit_code == 0


def test_somebody_elses_run_is_not_resumed_with_the_code_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = created(tmp_path, write_method(tmp_path))
    forget(monkeypatch)
    monkeypatch.delenv(trust.VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
    with pytest.raises(trust.NotTrusted, match=r"contains the code of its method that you did not provide"):
        codes.method_of(run)
    [archive] = run.path.glob("method-*.zip")
    archive.unlink()
    with pytest.raises(ValueError, match=r"has no code for its method confident .* launch it with --method"):
        codes.method_of(run)


def test_submitted_code_holds_the_method_and_a_worker_needs_the_run_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = write_method(tmp_path, REPAIR.replace("-0.5", "0.0"))
    run = created(tmp_path, method)
    archive = run.path / code_archive.take(run)
    for path in (method, *run.path.glob("method-*.zip")):
        path.unlink()
    work = "import sys; from jobs.work.worker import run_shard; run_shard(sys.argv[1], 0)"
    environment = {**os.environ, "PYTHONPATH": str(archive), "PYTHONSAFEPATH": "1"}
    subprocess.run([sys.executable, "-c", work, str(run.path)], check=True, cwd=tmp_path, env=environment)
    assert finished_ids(run) == planned_ids(run)
    steps = [step for path in run.trace_files() for row in trace_files.read_rows(path) for step in row["steps"]]
    assert {step["role"] for step in steps} == {"repair"}, "a word of the method's own"
    forget(monkeypatch)
    other = RunFolder(tmp_path / "other")
    other.path.mkdir()
    assert code_archive.take(other) != archive.name
    assert not [
        name for name in zipfile.ZipFile(other.path / code_archive.take(other)).namelist() if "own_methods" in name
    ]


def test_parameters_belong_to_the_method(tmp_path: Path) -> None:
    further = "score: float = parameter(0.5, help='A score.')\n    step_tokens: int"
    text = confident().replace("step_tokens: int", further)
    method = f"{write_method(tmp_path, text)}:Confident"
    words = ["--method", method, "--dataset", "demo", "--score", "0.7", "--temperature", "0.9"]
    launch = layers.launch_from(parsed_flags(words))
    assert launch.parameters == {"threshold": -0.5, "score": 0.7, "step_tokens": 512}
    assert launch.temperature == 0.9
    config = tmp_path / "my.toml"
    config.write_text('method = "confident.py:Confident"\nscore = 0.7\n')
    from_file = layers.launch_from({"config": str(config), "dataset": "demo", "temperature": 0.9})
    assert from_file == launch
    flags: dict[str, Any] = {"method": method, "dataset": "demo", "temperature": 0.9, "parameters": {"score": 0.7}}
    assert layers.launch_from(parsed_flags(layers.arguments(flags))) == launch
    text = CliRunner().invoke(launch_command, ["--method", method, "--help"]).output
    assert ("--score" in text, "--drafts" in text) == (True, False)
    with pytest.raises(ValueError, match="--drafts is not a parameter of confident"):
        layers.launch_from(parsed_flags(["--method", method, "--dataset", "demo", "--drafts", "3"]))


def test_a_parameter_with_the_name_of_a_flag_is_refused(tmp_path: Path) -> None:
    method = f"{write_method(tmp_path, CLASHING)}:Confident"
    result = CliRunner().invoke(launch_command, ["--method", method, "--dataset", "demo"])
    assert result.exit_code == 2
    assert "--temperature is also a launcher flag" in result.stderr


def test_a_suite_names_a_method_beside_it(tmp_path: Path) -> None:
    write_method(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(
        'dataset = "demo"\nengine = "scripted"\n[parameters]\nthreshold = -0.1\n'
        '[[run]]\nmethod = "confident.py:Confident"\n[run.parameters]\nstep_tokens = 9\n'
    )
    [launch] = suite.read(path).launches
    assert launch.parameters == {"threshold": -0.1, "step_tokens": 9}
    path.write_text(path.read_text().replace(".py:Confident", ".py:Sure"))
    with pytest.raises(suite.BadSuite, match=r"mine\.toml: run 1: --method .* no class Sure; found: Confident"):
        suite.read(path)
