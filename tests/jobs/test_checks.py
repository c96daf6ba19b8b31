"""What the doctor says of a run: all that a launch would refuse, and the models and the dataset that it would have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
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


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_torn_tokenizer_is_a_failure(file: str, tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-target,"), tmp_path / "torn")
    (folder / file).write_bytes((folder / file).read_bytes()[:100])
    checks = list(check_run(asked({"target": str(folder)}, method="vanilla", engine="transformers")))
    [failed] = [check for check in checks if check.status == "failure"]
    assert failed.subject == "target tokenizer"


def test_a_model_that_is_not_here_is_a_warning_with_the_command_that_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr("harness.problems.hub.offline_by", lambda **_: None)
    checks = list(check_run(asked({"target": "qwq-32b"}, method="vanilla", engine="transformers")))
    assert worst_status(checks) == "warning"
    assert "Qwen/QwQ-32B" in problem_texts(checks)


def test_what_a_launch_refuses_is_a_failure_in_its_words() -> None:
    question = asked({"target": "demo-target,"}, method="specdecode", engine="transformers", spec_decode="ngram")
    assert "--engine" in problem_texts(list(check_run(question)))


@pytest.mark.parametrize(
    ("cards", "workers", "message"), [("l40s:1", 1, "1 × L40S"), ("h100:8", 8, "1 × H100"), ("h100:8", 2, "")]
)
def test_memory_is_planned_with_the_cards_that_a_worker_has(cards: str, workers: int, message: str) -> None:
    models = {"draft": "r1-distill-qwen-1.5b", "target": "r1-distill-llama-70b"}
    flags: dict[str, Any] = {"method": "speccot", "gpus_per_node": cards, "workers_per_task": workers}
    question = question_of(PartialLaunch.from_flags({"engine": "vllm", "cluster": "slurm", **models, **flags}))
    failures = [check.text for check in check_run(question) if check.status == "failure"]
    assert len(failures) == bool(message)
    assert message in "".join(failures)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (lambda lines: lines, "ok"),
        (lambda lines: lines[:-1], "failure"),
        (lambda lines: [json.dumps(json.loads(lines[0]) | {"answer": "-1"}), *lines[1:]], "warning"),
    ],
    ids=["as recorded", "one is missing", "one answer differs"],
)
def test_a_dataset_is_compared_with_its_recorded_hash(
    lines: Callable[[list[str]], list[str]], status: str, tmp_path: Path
) -> None:
    (tmp_path / "demo.jsonl").write_text("\n".join(lines(DEMO.read_text().splitlines())) + "\n")
    [check] = check_run(asked(dataset="demo", data_dir=str(tmp_path)))
    assert check.status == status
    assert status != "warning" or KNOWN_HASHES["demo"] in check.text


def test_a_server_is_asked_what_it_runs_and_tried(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "tokenizer")
    with serving("vllm", HFTokenizer(str(tmp_path / "tokenizer"))) as fake:
        flags = {"method": "vanilla", "target_tokenizer": str(tmp_path / "tokenizer"), "engine": "auto"}
        checks = {check.subject: check for check in check_run(asked({"target": fake.url}, **flags))}
        assert (checks["target"].status, "org/story" in checks["target"].text) == ("ok", True)
        other = asked({"target": fake.url}, target_served_model="other", **flags)
        assert "'other'" in problem_texts(list(check_run(other)))


def test_a_question_to_a_node_keeps_the_cards_of_the_engines(tmp_path: Path) -> None:
    question = asked({"draft": "demo-draft"}, draft_gpus="0", target_template={"enable_thinking": False})
    (tmp_path / "question.json").write_text(question.to_json())
    assert Question.read(tmp_path / "question.json") == question
