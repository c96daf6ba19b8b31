"""Prompts of a run: wording of its own, chat templates at the launch, in workers and in the doctor, and one date."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import prompts
from harness.cli import exit_codes
from harness.launch import main
from harness.methods import build
from harness.prompts import load
from harness.settings.launch_settings import Launch
from harness.weights.models import pair_folder
from jobs.checks import check_run
from jobs.preparation import prepare
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.plan import check_prompts, plan
from jobs.run.spec import EngineSpec, ModelSpec, assign_to_shards, units
from jobs.work.engine_settings import engine_needs
from jobs.work.worker import run_shard
from tests.harness.checks.question import asked, problem_texts
from tests.harness.conftest import save_tokenizer
from tests.harness.weights.chat_templates import MISTRAL, PLAIN, QWEN3, QWEN3_INSTRUCT, REFUSED, Case
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


_BROKEN = [case for case in REFUSED if case.name in ("no assistant turn", "a thought begun")]


def _model(folder: Path, template: str) -> Path:
    shutil.copytree(pair_folder("demo-target"), folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def _flags(folder: Path, **flags: Any) -> dict[str, Any]:
    few: dict[str, Any] = {"method": "vanilla", "dataset": "demo", "limit": 2, "samples": 1, "token_budget": 32}
    return {**few, "target": str(folder), "engine": "transformers", "output": folder.parent / "runs", **flags}


def _created(launch: Launch, date: str, num_shards: int = 1) -> RunFolder:
    planned = plan(launch, "local")
    run = RunFolder(launch.output / planned.spec.run_id)
    spec = replace(planned.spec, prompt_date=date)
    run.create(spec, planned.problems, assign_to_shards(units(spec, planned.problems), num_shards))
    return run


@pytest.mark.parametrize("case", _BROKEN, ids=lambda case: case.name)
def test_a_template_that_means_something_else_is_refused_everywhere_in_the_same_words(
    case: Case, tmp_path: Path
) -> None:
    folder = _model(tmp_path / "own", PLAIN)
    run = _created(Launch.from_flags(_flags(folder)), "2026-03-01")
    (folder / "chat_template.jinja").write_text(case.template)
    begun = RunFolder(run.path.rename(tmp_path / "begun"))
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in _flags(folder, cluster="debug").items()]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == exit_codes.WRONG_INPUT
    [line] = [line for line in refused.stderr.splitlines() if case.refusal in line]
    words = line.partition(" own: ")[2]
    assert words
    assert not list((tmp_path / "runs").glob("*"))
    spec = begun.spec()
    with pytest.raises(ValueError, match=r"^target own: ") as of_worker:
        engine_needs(begun, spec, build(spec.method, dict(spec.params)), begun.problems())
    assert str(of_worker.value) == f"target own: {words}"
    question = asked({"target": str(folder)}, method="vanilla", parameters=dict(spec.params), engine="transformers")
    assert words in problem_texts(list(check_run(question)))


@pytest.mark.parametrize(
    ("template", "flags", "is_named"),
    [(QWEN3_INSTRUCT, {}, True), (QWEN3_INSTRUCT, {"target_thinking_tags": "none"}, False), (QWEN3, {}, False)],
)
def test_a_model_that_may_think_without_a_sign_in_its_prompt_is_named(
    template: str, flags: dict[str, Any], is_named: bool, tmp_path: Path
) -> None:
    launch = Launch.from_flags(_flags(_model(tmp_path / "own", template), **flags))
    said = [line for line in prepare(launch).plan.notices if "--target.thinking-tags" in line]
    assert bool(said) == is_named


def test_all_prompts_of_a_run_hold_the_date_of_its_first_launch(tmp_path: Path) -> None:
    folder = _model(tmp_path / "own", MISTRAL)
    launch = Launch.from_flags(_flags(folder))
    run = _created(launch, "2026-03-01", num_shards=2)
    run_shard(str(run.path), 0)
    again = prepare(launch)
    assert again.run.path == run.path, "the day of the launch is no part of the run's id"
    assert again.plan.spec.prompt_date != "2026-03-01"
    run_shard(str(run.path), 1)
    parts = run.trace_files()
    prompts = [row["target_prompt"] for part in parts for row in trace_files.read_rows(part)]
    assert [prompt.count("01-03-2026") for prompt in prompts] == [1, 1]
    attempts = [json.loads(trace_files.read_metadata(part)["attempt"]) for part in parts]
    assert {attempt["engines"]["target"]["prompt_date"] for attempt in attempts} == {"2026-03-01"}
