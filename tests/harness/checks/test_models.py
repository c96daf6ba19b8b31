"""The doctor's checks of models, tokenizers and datasets, on real failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import environment
from harness.checks import models as checks_of
from harness.checks.finding import Check, Question
from harness.checks.models import check_servers, check_tokenizers
from harness.doctor import question_of
from harness.engines import speculation as settings
from harness.settings.launch_settings import PartialLaunch
from harness.weights import models
from harness.weights.tokenizer import HFTokenizer
from tests.harness.checks.question import DEMO, asked, problem_texts, worst_status
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.heads import EAGLE3_CONFIG, save_config, target_config
from tests.harness.engines.served.fake_server import serving

# Models


def write_shard(path: Path, num_bytes: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))


def write_model(folder: Path) -> Path:
    """Write a model folder in the expected format, with two files of weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 32768}))
    (folder / "tokenizer.json").write_text("{}")
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for shard in shards:
        write_shard(folder / shard)
    weight_map = {f"layer{i}": shard for i, shard in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


SECOND, INDEX = "model-00002-of-00002.safetensors", "model.safetensors.index.json"


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def keep(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:num_bytes])


def as_gguf(folder: Path) -> None:
    remove(folder, *(path.name for path in folder.glob("model*")))
    (folder / "model.gguf").write_bytes(b"GGUF")


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard is missing": (lambda f: (f / SECOND).unlink(), "1 of 2 weight files are missing (model-00002"),
    "a shard is empty": (lambda f: (f / SECOND).write_bytes(b""), f"{SECOND} is empty"),
    "a shard is cut off": (
        lambda f: cut(f / SECOND),
        f"{SECOND} is damaged (Error while deserializing header: incomplete metadata",
    ),
    "a shard is a Git LFS pointer": (
        lambda f: (f / SECOND).write_text(POINTER),
        f"{SECOND} is a Git LFS pointer (git lfs pull)",
    ),
    "a shard is cut in its length": (
        lambda f: keep(f / SECOND, 5),
        f"{SECOND} is damaged (Error while deserializing header: header too small",
    ),
    "a shard is cut in its header": (
        lambda f: keep(f / SECOND, 30),
        f"{SECOND} is damaged (Error while deserializing header: invalid header length",
    ),
    "a shard is cut after its header": (
        lambda f: keep(f / SECOND, 8 + 67),
        f"{SECOND} is damaged (Error while deserializing header: incomplete metadata",
    ),
    "a shard is too long": (lambda f: (f / SECOND).open("ab").write(b"more"), f"{SECOND} is damaged ("),
    "an index names files elsewhere": (
        lambda f: (f / INDEX).write_text(json.dumps({"weight_map": {"w": "../other.safetensors"}})),
        "not a valid index",
    ),
    "GGUF alone": (as_gguf, "has GGUF weights alone"),
    "a shard is something else": (lambda f: (f / SECOND).write_text("<html>Not found</html>" * 9), "header too large"),
    "no weights": (lambda f: remove(f, *(p.name for p in f.glob("model*"))), "no weights"),
    "the index is broken": (lambda f: cut(f / INDEX), "not a valid index of weights"),
    "no config.json": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "a broken config.json": (lambda f: cut(f / "config.json"), "not a valid configuration"),
    "a config.json without a type": (lambda f: (f / "config.json").write_text("{}"), "config.json names no model_type"),
    "config.json is a Git LFS pointer": (lambda f: (f / "config.json").write_text(POINTER), "git lfs pull"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "the tokenizer is a Git LFS pointer": (lambda f: (f / "tokenizer.json").write_text(POINTER), "git lfs pull"),
    "a vocabulary without merges": (
        lambda f: (f / "tokenizer.json").rename(f / "vocab.json"),
        "has no tokenizer.json",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder_is_a_failure_that_names_what_is_missing(tmp_path: Path, damage: str) -> None:
    folder = write_model(tmp_path / "model")
    assert worst_status(checks_of.find_model("target", str(folder))[0]) == "ok"
    harm, text = DAMAGES[damage]
    harm(folder)
    checks, _ = checks_of.find_model("target", str(folder))
    assert worst_status(checks) == "failure"
    assert text in problem_texts(checks)


def test_a_configuration_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    names = ["\x1b[2J" + "X" * 10_000 + "ForMaskedLM"]
    (folder / "config.json").write_text(json.dumps({"model_type": "x", "architectures": names}))
    [check], _ = checks_of.find_model("target", str(folder))
    assert check.status == "failure"
    assert check.text.isprintable()
    assert len(check.text) < 1000


@pytest.mark.parametrize(
    ("names", "left_over"),
    [
        (["model.safetensors"], "pytorch_model.bin.index.json"),
        (["pytorch_model.bin", "training_args.bin"], INDEX),
        (["model.safetensors", "consolidated.safetensors"], None),
    ],
)
def test_weights_of_one_kind_are_whole_whatever_is_left_of_another(
    tmp_path: Path, names: list[str], left_over: str | None
) -> None:
    """People download one kind of weights and leave the other out, but not its index."""
    folder = write_model(tmp_path / "model")
    remove(folder, *(path.name for path in folder.glob("model*")))
    for name in names:
        write_shard(folder / name)
    if left_over:
        (folder / left_over).write_text(json.dumps({"weight_map": {"w": "absent-00001-of-00002"}}))
    assert models.weight_files(folder).problems == []


# Tokenizers


def save_word_tokenizer(folder: Path) -> None:
    """Save a tokenizer of words without digits: every digit is the same unknown token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "Score", "Answer", ":", "User", "Assistant"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]").save_pretrained(folder)


def test_tokenizers_that_cannot_give_a_verdict_or_cannot_be_loaded_are_failures(tmp_path: Path) -> None:
    save_word_tokenizer(tmp_path / "words")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text('{"version": "1.0"}')
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "llama"}')
    question = asked(models=dict.fromkeys(("draft", "target"), "m"), method="specreason")
    checks = list(check_tokenizers({"draft": tmp_path / "broken", "target": tmp_path / "words"}, question))
    assert [(check.subject, check.status) for check in checks] == [
        ("draft tokenizer", "failure"),
        ("target tokenizer", "failure"),
    ]
    assert "these labels are not one distinct token each after 'Score:'" in checks[1].text


def test_good_tokenizers_are_ok_and_a_different_vocabulary_is_reported(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "one")
    save_tokenizer(tmp_path / "two", added=("<think>", "</think>"))
    checks = list(
        check_tokenizers({"draft": tmp_path / "one", "target": tmp_path / "two"}, asked({"draft": "m", "target": "m"}))
    )
    assert worst_status(checks) == "ok"
    assert "0 1 2 3 4 5 6 7 8 9" in checks[1].text
    assert "different" in checks[2].text


# Dataset


def test_the_bundled_dataset_has_its_recorded_hash() -> None:
    [check] = checks_of.check_dataset(asked(dataset="demo"))
    assert check.status == "ok"
    assert "40 problems" in check.text


def test_a_wrong_count_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").write_bytes(b"".join(DEMO.read_bytes().splitlines(keepends=True)[:-1]))
    [check] = checks_of.check_dataset(asked(dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "39 problems, demo should have 40" in check.text


def test_a_changed_answer_is_a_warning_with_both_hashes(tmp_path: Path) -> None:
    first, *others = DEMO.read_bytes().splitlines(keepends=True)
    record = {**json.loads(first), "answer": "-1"}
    (tmp_path / "demo.jsonl").write_bytes(json.dumps(record).encode() + b"\n" + b"".join(others))
    [check] = checks_of.check_dataset(asked(dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "warning"
    assert f"not {checks_of.KNOWN_HASHES['demo']}" in check.text


def test_a_dataset_that_is_nowhere_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    [check] = checks_of.check_dataset(asked(dataset="aime25", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "--data-dir" in check.text


NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("servers") / "tokenizer"
    save_tokenizer(path)
    return path


def test_a_server_is_asked_what_it_runs_and_tried(folder: Path) -> None:
    with serving("vllm", HFTokenizer(str(folder))) as fake:
        checks = list(check_servers(asked({"target": fake.url}, target_tokenizer=str(folder))))
        assert worst_status(checks) == "ok"
        assert checks[0].text.startswith("vllm 0.32.0 with org/story, a context of 4096 tokens")
        other = asked({"target": fake.url}, target_served_model="other")
        assert "does not serve 'other'" in problem_texts(list(check_servers(other)))


def test_a_server_that_does_not_answer_is_a_failure_here_and_a_warning_on_a_login_node() -> None:
    assert worst_status(list(check_servers(asked({"target": f"{NOBODY}/v1"})))) == "failure"
    there = list(check_servers(asked({"target": f"{NOBODY}/v1"}, cluster="slurm")))
    assert worst_status(there) == "warning"
    assert "the jobs look for a server on their nodes" in problem_texts(there)


def test_served_models_are_asked_for_and_not_looked_for_on_this_machine() -> None:
    flags = {"method": "specreason", "dataset": "demo", "draft": f"{NOBODY}/v1", "target": f"{NOBODY}/v1"}
    question = question_of(PartialLaunch.from_flags({**flags, "cluster": "local"}), on_node=False)
    assert question.engine == "served"
    assert {*question.served} == {"draft", "target"}
    assert not question.named


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(environment, "accelerator", lambda: "gpu")
    return str(save_config(tmp_path / "target", target_config()))


def _checks(target: str, **changes: Any) -> list[Check]:
    question = asked(models={"target": target}, spec_decode="eagle3", **{"temperature": 0, **changes})
    return list(checks_of.check_speculation(question))


def test_a_head_with_its_weights_is_ok(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = save_config(tmp_path / "head", EAGLE3_CONFIG)
    write_shard(head / "model.safetensors")
    assert worst_status(_checks(target, spec_model=str(head))) == "ok"
    assert "GREEDY DRAFTS" in problem_texts(_checks(target, spec_model=str(head), temperature=0.6))


def test_missing_weights_are_named(target: str, tmp_path: Path) -> None:
    head = save_config(tmp_path / "head", EAGLE3_CONFIG)
    assert "no weights (*.safetensors)" in problem_texts(_checks(target, spec_model=str(head)))


def test_suffix_without_its_package_is_a_failure(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    question = asked(models={"target": target}, spec_decode="suffix")
    assert "pip install arctic-inference" in problem_texts(list(checks_of.check_speculation(question)))


def test_a_question_to_a_node_keeps_the_cards_of_the_engines(tmp_path: Path) -> None:
    question = asked(models={"draft": "demo-draft"}, draft_gpus="0", target_template={"enable_thinking": False})
    (tmp_path / "question.json").write_text(question.to_json())
    assert Question.read(tmp_path / "question.json") == question
