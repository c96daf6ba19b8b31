"""Runs with --prompts: the run folder holds the whole wording, and another wording is another run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import prompts
from harness.launch import main
from harness.prompts import BUILT_IN, load
from harness.settings.launch_settings import Launch
from jobs.run import trace_files
from jobs.run.endings import compact, read_state
from jobs.run.folder import RunFolder
from jobs.run.plan import check_prompts, plan
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, assign_to_shards, units
from jobs.work.worker import run_shard
from tests.harness.conftest import save_tokenizer
from tests.jobs.runs import SLOW_WORKER, finished_ids, planned_ids, wait_for_steps

OWN = "system = 'Sir.'\n[instruction.plain]\nmath = 'Mind the units.'\n[step_choice]\nitem = 'Try {label}: {text}'\n"


def launch(folder: Path, text: str | None = OWN) -> Launch:
    flags: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "scripted", "limit": 4, "samples": 3}
    if text is not None:
        (folder / "own.toml").write_text(text)
        flags["prompts"] = folder / "own.toml"
    return Launch.from_flags(flags)


def created(launched: Launch, folder: Path) -> RunFolder:
    planned = plan(launched, "local")
    run = RunFolder(folder / planned.spec.run_id)
    run.create(planned.spec, planned.problems, assign_to_shards(units(planned.spec, planned.problems), 1))
    return run


def test_a_killed_run_goes_on_in_its_own_wording_after_the_file_is_gone(tmp_path: Path) -> None:
    run = created(launch(tmp_path), tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(run.path)], env=dict(os.environ))
    wait_for_steps(run, 3)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    (tmp_path / "own.toml").unlink()
    assert read_state(run).unfinished
    run_shard(str(run.path), 0)
    compact(run)
    assert finished_ids(run) == planned_ids(run)
    rows = [row for part in run.trace_files() for row in trace_files.read_rows(part)]
    assert all(row["draft_prompt"].startswith("System: Sir.\nUser: ") for row in rows)
    assert all("\n\nMind the units.\nAssistant: " in row["target_prompt"] for row in rows)
    questions = [verdict["question"] for row in rows for step in row["steps"] for verdict in step["verdicts"]]
    assert questions
    assert all("Try 1: " in question for question in questions)


def test_a_changed_file_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    one = plan(launch(tmp_path), "local").spec
    other = plan(launch(tmp_path, OWN.replace("Sir", "Madam")), "local").spec
    same = plan(launch(tmp_path, "# reformatted\n" + OWN), "local").spec
    assert one.run_id == same.run_id != other.run_id
    shown = prompts.prompt_hash(load(tmp_path / "own.toml"))
    assert one.prompt_hash == shown != other.prompt_hash


def test_without_a_file_or_with_one_that_changes_nothing_a_run_is_what_it_was(tmp_path: Path) -> None:
    plain, empty = (plan(launch(tmp_path, text), "local") for text in (None, "system = ''"))
    assert plain.spec == empty.spec
    assert plain.spec.prompts is None
    assert plain.spec.prompt_hash == prompts.prompt_hash()
    own = plan(launch(tmp_path), "local")
    [problem, *_] = own.problems
    assert set(own.spec.sample_ids(problem)).isdisjoint(plain.spec.sample_ids(problem))


def test_a_spec_holds_every_text(tmp_path: Path) -> None:
    spec = plan(launch(tmp_path), "local").spec
    read = RunSpec.from_json(spec.to_json())
    assert read == spec
    assert read.wording.system == "Sir."
    assert set(json.loads(spec.to_json())["prompts"]) == set(BUILT_IN.model_dump())


@pytest.mark.parametrize("arguments", [(), ("--list", "prompts")])
def test_a_wrong_file_is_one_line_with_exit_code_2_before_anything_is_written(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[score]\nquestion = ''")
    words = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--output", str(tmp_path / "runs")]
    result = CliRunner().invoke(main, [*words, "--prompts", str(tmp_path / "own.toml"), *arguments])
    assert result.exit_code == 2
    assert "score.question: is empty" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_listed_prompts_are_a_file_that_changes_nothing(tmp_path: Path) -> None:
    listed = CliRunner().invoke(main, ["--list", "prompts"]).output
    (tmp_path / "built-in.toml").write_text(listed)
    assert load(tmp_path / "built-in.toml") == BUILT_IN
    assert prompts.prompt_hash() in listed
    (tmp_path / "own.toml").write_text(OWN)
    own = CliRunner().invoke(main, ["--list", "prompts", "--prompts", str(tmp_path / "own.toml")]).output
    assert prompts.prompt_hash(load(tmp_path / "own.toml")) in own


_ASKS = "{% if add_generation_prompt %}assistant: {% endif %}"
_REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
_IGNORES = "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}" + _ASKS
_TAKES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" + _ASKS


@pytest.mark.parametrize("template", [_REFUSES + _TAKES, _IGNORES, None])
def test_a_model_without_a_system_role_is_named_before_anything_is_queued(template: str | None, tmp_path: Path) -> None:
    own = load(launch(tmp_path).prompts or Path())
    small, large = (tmp_path / name for name in ("small", "large"))
    save_tokenizer(small, template=template)
    save_tokenizer(large, template=_TAKES)
    lacking, taking = (
        ModelSpec(model=path.name, path=str(path), revision=None, fingerprint="f") for path in (small, large)
    )
    vllm = replace(plan(launch(tmp_path), "local").spec, engine=EngineSpec("vllm"), prompts=own)
    with pytest.raises(ValueError, match=r"^--target small: its chat template has no system role"):
        list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=lacking)))
    list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=taking)))
    list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=lacking, prompts=None)))
