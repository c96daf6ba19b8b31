"""Runs with --prompts: the run folder holds the whole wording, and another wording is another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import prompts
from harness.launch import main
from harness.prompts import load
from harness.settings.launch_settings import Launch
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.plan import check_prompts, plan
from jobs.run.spec import EngineSpec, ModelSpec, assign_to_shards, units
from jobs.work.worker import run_shard
from tests.harness.conftest import save_tokenizer
from tests.jobs.runs import finished_ids, planned_ids

OWN = "system = 'Sir.'\n[instruction.plain]\nmath = 'Mind the units.'\n[step_choice]\nitem = 'Try {label}: {text}'\n"


def launch(folder: Path, text: str | None = OWN) -> Launch:
    flags: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "scripted", "limit": 4, "samples": 3}
    if text is not None:
        (folder / "own.toml").write_text(text)
        flags["prompts"] = folder / "own.toml"
    return Launch.from_flags(flags)


def test_a_run_has_its_own_wording_after_the_file_is_gone(tmp_path: Path) -> None:
    planned = plan(launch(tmp_path), "local")
    run = RunFolder(tmp_path / planned.spec.run_id)
    run.create(planned.spec, planned.problems, assign_to_shards(units(planned.spec, planned.problems), 1))
    (tmp_path / "own.toml").unlink()
    run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)
    for row in (row for part in run.trace_files() for row in trace_files.read_rows(part)):
        assert row["draft_prompt"].startswith("System: Sir.\nUser: ")
        assert row["target_prompt"].count("Mind the units.") == 1
        assert all("Try 1: " in verdict["question"] for step in row["steps"] for verdict in step["verdicts"])


def test_a_changed_file_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    one = plan(launch(tmp_path), "local").spec
    other = plan(launch(tmp_path, OWN.replace("Sir", "Madam")), "local").spec
    same = plan(launch(tmp_path, "# reformatted\n" + OWN), "local").spec
    assert one.run_id == same.run_id != other.run_id
    plain, empty = (plan(launch(tmp_path, text), "local").spec for text in (None, "system = ''"))
    assert (plain, plain.prompts) == (empty, None)
    launch(tmp_path)
    shown = prompts.prompt_hash(load(tmp_path / "own.toml"))
    assert one.prompt_hash == shown != other.prompt_hash


def test_a_wrong_file_is_one_line_with_exit_code_2_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[score]\nquestion = ''")
    words = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--output", str(tmp_path / "runs")]
    result = CliRunner().invoke(main, [*words, "--prompts", str(tmp_path / "own.toml")])
    assert (result.exit_code, result.stderr.count("\n"), "score.question" in result.stderr) == (2, 1, True)
    assert not (tmp_path / "runs").exists()


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
    with pytest.raises(ValueError, match=r"^--target small: the chat template has no system role"):
        list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=lacking)))
    list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=taking)))
    list(check_prompts(launch(tmp_path), replace(vllm, draft=taking, target=lacking, prompts=None)))
