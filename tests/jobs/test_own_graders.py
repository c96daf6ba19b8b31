"""Runs that a function of a user's own grades: its code travels with the run, and its hash stands with every grade."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grading import grader_version
from grading.regrade import main as regrade
from harness.launch import main as launch_command
from harness.settings import layers
from harness.settings.launch_settings import Launch
from jobs import graders
from jobs.__main__ import main as jobs_main
from jobs.finished import grading
from jobs.run import derived, trace_files, trust
from jobs.run.folder import RunFolder
from jobs.run.plan import plan
from tests.jobs.runs import jobs
from warehouse.candidates import main as grade_drafts
from warehouse.database import reader, rows

GUIDE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
RAISES = "def grade(text, gold, problem):\n    return problem['id'] < '1' or {}['x']\n"
GOLDS = ["7\nanswer", "answer is\nthe", "6"]
"""Of one part or several. The scripted engine ends with `The answer is \\boxed{7}.`, 8 and 5."""


def write_grader(folder: Path, text: str = "", name: str = "short.py") -> str:
    """The grader of the guide, word for word, or another one; returns its reference."""
    [guide] = [code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "def grade" in code]
    (folder / name).write_text(text or guide)
    return f"{folder / name}:grade"


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A launch on own problems whose golds the built-in check of golds would refuse or warn of."""
    monkeypatch.delenv(trust.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    questions = [{"problem": f"What is {n} + 4?", "answer": gold} for n, gold in zip((3, 4, 1), GOLDS, strict=True)]
    (tmp_path / "my.jsonl").write_text("\n".join(map(json.dumps, questions)))
    common = {"method": "vanilla", "dataset": str(tmp_path / "my.jsonl"), "engine": "scripted", "samples": 2}
    return {**common, "temperature": 0.0, "cluster": "debug", "output": str(tmp_path / "runs")}


def launched(flags: dict[str, Any], **more: Any) -> Result:
    return CliRunner().invoke(launch_command, layers.arguments({**flags, **more}))


def run_of(flags: dict[str, Any]) -> RunFolder:
    [path] = Path(flags["output"]).glob("my-*")
    return RunFolder(path)


def verdicts(run: RunFolder) -> list[str]:
    of = {unit.sample_id: unit.problem_id for shard in run.shards() for unit in shard}
    found = derived.read_grades(derived.grade_files(run)[-1])
    return [str(found[name]["verdict"]) for name in sorted(found, key=of.__getitem__)]


def counted_version(run: RunFolder) -> list[object]:
    with reader(run.path.parent / "warehouse.duckdb") as connection:
        [row] = rows(connection, "SELECT grader_version, num_correct, num_grader_versions FROM pass_at_1")
    return list(row.values())


def test_an_own_grader_grades_a_run_and_its_file_is_needed_no_more(flags: dict[str, Any], tmp_path: Path) -> None:
    reference = write_grader(tmp_path)
    result = launched(flags, grader=reference)
    assert result.exit_code == 0, result.output
    assert "REFERENCE ANSWERS" not in result.output
    assert "REFERENCE ANSWERS" in launched(flags, dry_run=True, tag="another").output
    run = run_of(flags)
    version = graders.recorded(run).version
    assert re.fullmatch(r"own short\.py:grade [0-9a-f]{12}", version)
    assert version in result.output
    assert verdicts(run) == ["correct"] * 4 + ["wrong"] * 2
    assert counted_version(run) == [version, 4, 1]
    planned = plan(Launch.from_flags({**flags, "grader": "built-in"}), "local").spec
    assert run.spec().run_id == planned.run_id, "the grader is no part of the run"
    assert str(tmp_path) not in run.events_path.read_text(), "where it lay is nobody's business"
    (tmp_path / "short.py").unlink()
    [grades] = run.derived("grades")
    grades.unlink()
    assert jobs("finalize", run.path).exit_code == 0
    assert verdicts(run).count("correct") == 4


def test_an_exception_leaves_samples_ungraded_until_the_repaired_grader_is_named(
    flags: dict[str, Any], tmp_path: Path
) -> None:
    result = launched(flags, grader=write_grader(tmp_path, RAISES.replace("'1'", "'row/1'")))
    run = run_of(flags)
    assert result.exit_code == 1
    line = result.stderr.splitlines()[-1]
    assert "KeyError: 'x' (short.py:2)" in line
    assert "--grader short.py:grade" in line
    assert verdicts(run) == ["correct"] * 2
    assert jobs("finalize", run.path).exit_code == 1
    reference = write_grader(tmp_path)
    assert jobs("finalize", run.path).exit_code == 1, "an edit has no effect until the file is named"
    done = jobs("finalize", run.path, "--grader", reference)
    assert done.exit_code == 0, done.output
    assert len(verdicts(run)) == 6
    assert len({file.version for file in derived.grade_files(run)}) == 2, "another hash, another version"


def test_the_grader_named_last_counts_and_the_grades_of_others_stay(flags: dict[str, Any], tmp_path: Path) -> None:
    reference = write_grader(tmp_path)
    assert launched(flags, grader=reference).exit_code == 0
    run = run_of(flags)
    own = graders.recorded(run).version
    assert launched(flags).exit_code == 0, "a launch names the built-in one"
    assert counted_version(run) == [grader_version(), 2, 2]
    assert launched(flags, grader=reference).exit_code == 0
    assert counted_version(run) == [own, 4, 2], "also where it has nothing left to grade"
    assert launched(flags, grader=reference).exit_code == 0
    assert len(run.events("grader")) == 3
    shown = CliRunner().invoke(regrade, [str(run.path), "--grader", "built-in", "--diff"])
    assert shown.exit_code == 0, shown.output
    write_grader(tmp_path, "def grade(text, gold, problem):\n    return True\n")
    assert launched(flags, grader=reference).exit_code == 0
    assert verdicts(run) == ["correct"] * 6
    assert len(derived.grade_files(run)) == 3
    assert grading.is_concluded(run)


def test_somebody_elses_grader_runs_only_once_it_was_shown_and_accepted(
    flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w').close()\n{RAISES.replace(' or {}', ' or True or {}')}"
    assert launched(flags, grader=write_grader(tmp_path, text), method="speccot").exit_code == 0
    run = run_of(flags)
    for main, words in ((regrade, [str(run.path)]), (jobs_main, ["finalize", str(run.path)])):
        for path in (*run.derived("grades"), mark):
            path.unlink()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"another user's {len(words)}"))
        monkeypatch.delenv(trust.VARIABLE)
        shown = CliRunner().invoke(main, words)
        assert (shown.exit_code, RAISES.splitlines()[0] in shown.output, mark.exists()) == (2, True, False)
        done = CliRunner().invoke(main, [*words, "--trust"])
        assert mark.exists(), done.output


def test_a_job_trusts_what_whoever_submitted_it_gave(
    flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(flags, grader=write_grader(tmp_path)).exit_code == 0
    run = run_of(flags)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of the node"))
    assert jobs("finalize", run.path).exit_code == 0, "its batch script exports the digests"
    [archive] = run.path.glob("grader-*.zip")
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr("code/more.py", "")
    assert jobs("finalize", run.path).exit_code == 2
    archive.unlink()
    refused = jobs("finalize", run.path)
    assert (refused.exit_code, refused.stderr.count("\n"), "short.py:grade" in refused.stderr) == (2, 1, True)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("", "grade"),
        ("", "short.py"),
        ("", "nowhere.py:grade"),
        ("grade = 3", "short.py:grade"),
        ("def grade(text, gold): ...", "short.py:grade"),
        ("1 / 0", "short.py:grade"),
        ("GIBIBYTES = 0\ndef grade(*a): ...", "short.py:grade"),
    ],
)
def test_a_wrong_grader_is_one_line_before_anything_is_written(
    text: str, reference: str, flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_grader(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    refused = launched(flags, grader=reference)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert f"--grader {reference}: " in refused.stderr
    assert not Path(flags["output"]).exists()


def test_drafts_are_graded_by_the_grader_of_their_run(flags: dict[str, Any], tmp_path: Path) -> None:
    accepts_sevens = "def grade(text, gold, problem):\n    return '7' in text, text[-3:]\n"
    result = launched(flags, grader=write_grader(tmp_path, accepts_sevens), method="scot")
    assert result.exit_code == 0, result.output
    run = run_of(flags)
    assert CliRunner().invoke(grade_drafts, [str(run.path)]).exit_code == 0
    [path] = run.derived("candidate_grades")
    graded = trace_files.read_rows(path)
    assert {row["grader_version"] for row in graded} == {graders.recorded(run).version}
    assert {row["verdict"] for row in graded} == {"correct", "wrong"}
