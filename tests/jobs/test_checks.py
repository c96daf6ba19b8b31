"""What the doctor says of a run: all that a launch would refuse, and the models and the dataset that it would have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.checks.finding import Question
from harness.problems.benchmarks import KNOWN_HASHES
from harness.settings.launch_settings import PartialLaunch
from harness.weights.models import pair_folder
from harness.weights.tokenizer import HFTokenizer
from jobs.checks import check_run, question_of
from tests.harness.checks.question import DEMO, asked, problem_texts, worst_status
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import serving

NOBODY = "http://127.0.0.1:9"


def test_a_good_run_is_told_with_its_models_and_its_dataset() -> None:
    question = asked({"draft": "demo-draft", "target": "demo-target"}, method="speccot", engine="transformers")
    checks = {check.subject: check for check in check_run(question)}
    assert {check.status for check in checks.values()} == {"ok"}
    assert "1 complete weight file" in checks["target"].text
    assert set(checks) == {"draft", "target", "run"}


def test_every_damaged_model_is_named(tmp_path: Path) -> None:
    folders = {role: tmp_path / role for role in ("draft", "target")}
    for role, folder in folders.items():
        shutil.copytree(pair_folder(f"demo-{role}"), folder)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    named = {role: str(folder) for role, folder in folders.items()}
    checks = list(check_run(asked(named, method="speccot", engine="transformers", dataset="demo")))
    assert [(check.subject, check.status) for check in checks] == [
        ("dataset", "ok"),
        ("draft", "failure"),
        ("target", "failure"),
    ]
    assert "incomplete metadata" in problem_texts(checks)


def test_without_a_method_every_model_that_is_named_is_checked(tmp_path: Path) -> None:
    folders = {name: str(tmp_path / name) for name in ("draft", "target", "spec_model")}
    for folder in folders.values():
        Path(folder).mkdir()
        (Path(folder) / "config.json").write_text("{}")
    checks = list(check_run(asked({**folders, "reward": "demo-target"})))
    failed = {check.subject for check in checks if check.status == "failure"}
    assert failed == {"draft", "target", "speculator"}
    assert "has no weights" in problem_texts(checks)
    assert [check.subject for check in checks if check.status == "ok"] == ["reward"]


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("method", ["vanilla", None])
def test_a_torn_tokenizer_is_a_failure(method: str | None, file: str, tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-target"), tmp_path / "torn")
    (folder / file).write_bytes((folder / file).read_bytes()[:100])
    checks = list(check_run(asked({"target": str(folder)}, method=method, engine="transformers")))
    [failed] = [check for check in checks if check.status == "failure"]
    assert failed.subject == "target tokenizer"
    assert "its tokenizer cannot be loaded" in failed.text


def test_a_model_that_is_not_here_is_a_warning_with_the_command_that_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("harness.problems.hub.offline_by", lambda **_: None)
    checks = list(check_run(asked({"target": "qwq-32b"}, method="vanilla", engine="transformers")))
    assert worst_status(checks) == "warning"
    assert "hf download Qwen/QwQ-32B --revision " in problem_texts(checks)


def test_what_a_launch_refuses_is_a_failure_in_its_words() -> None:
    question = asked({"target": "demo-target"}, method="specdecode", engine="transformers", spec_decode="ngram")
    assert "token-level speculation needs --engine vllm" in problem_texts(list(check_run(question)))


@pytest.mark.parametrize(
    ("cards", "workers", "message"),
    [("l40s:1", 1, "do not fit on 1 × L40S"), ("h100:8", 8, "do not fit on 1 × H100"), ("h100:8", 2, "")],
)
def test_memory_is_planned_with_the_cards_that_a_worker_has(cards: str, workers: int, message: str) -> None:
    models = {"draft": "r1-distill-qwen-1.5b", "target": "r1-distill-llama-70b"}
    flags: dict[str, Any] = {"method": "speccot", "gpus_per_node": cards, "workers_per_task": workers}
    question = question_of(PartialLaunch.from_flags({"engine": "vllm", "cluster": "slurm", **models, **flags}))
    failures = [check.text for check in check_run(question) if check.status == "failure"]
    assert len(failures) == bool(message)
    assert message in "".join(failures)


def test_the_bundled_dataset_has_its_recorded_hash() -> None:
    [check] = check_run(asked(dataset="demo"))
    assert check.status == "ok"
    assert "40 problems" in check.text


def test_a_wrong_count_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").write_bytes(b"".join(DEMO.read_bytes().splitlines(keepends=True)[:-1]))
    [check] = check_run(asked(dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "39 problems, demo should have 40" in check.text


def test_a_changed_answer_is_a_warning_with_both_hashes(tmp_path: Path) -> None:
    first, *others = DEMO.read_bytes().splitlines(keepends=True)
    record = {**json.loads(first), "answer": "-1"}
    (tmp_path / "demo.jsonl").write_bytes(json.dumps(record).encode() + b"\n" + b"".join(others))
    [check] = check_run(asked(dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "warning"
    assert f"not {KNOWN_HASHES['demo']}" in check.text


def test_a_dataset_that_is_nowhere_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    [check] = check_run(asked(dataset="aime25", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "--data-dir" in check.text


def test_a_server_is_asked_what_it_runs_and_tried(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "tokenizer")
    with serving("vllm", HFTokenizer(str(tmp_path / "tokenizer"))) as fake:
        flags = {"method": "vanilla", "target_tokenizer": str(tmp_path / "tokenizer"), "engine": "auto"}
        checks = {check.subject: check for check in check_run(asked({"target": fake.url}, **flags))}
        assert checks["target"].text.startswith("vllm with org/story: token ids and verdicts work")
        other = asked({"target": fake.url}, target_served_model="other", **flags)
        assert "does not serve 'other'" in problem_texts(list(check_run(other)))


def test_a_server_that_does_not_answer_is_a_failure_where_workers_run() -> None:
    checks = list(check_run(asked({"target": f"{NOBODY}/v1"}, method="vanilla", engine="auto")))
    assert worst_status(checks) == "failure"


def test_served_models_are_asked_for_and_not_looked_for_on_this_machine() -> None:
    flags = {"method": "specreason", "dataset": "demo", "draft": f"{NOBODY}/v1", "target": f"{NOBODY}/v1"}
    question = question_of(PartialLaunch.from_flags({**flags, "cluster": "local"}))
    assert question.engine == "served"


def test_a_question_to_a_node_keeps_the_cards_of_the_engines(tmp_path: Path) -> None:
    question = asked({"draft": "demo-draft"}, draft_gpus="0", target_template={"enable_thinking": False})
    (tmp_path / "question.json").write_text(question.to_json())
    assert Question.read(tmp_path / "question.json") == question
