"""Models: what a name stands for, the bundled pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.weights import models
from harness.weights.models import MODELS, ModelRef, ModelUnavailable, default_pair, resolve


def model_folder(path: Path, **config: object) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama"} | config))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(bytes(50_000))
    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_short_name_is_a_hub_id_with_a_pinned_commit(name: str) -> None:
    pinned_model = MODELS[name]
    assert pinned_model.revision is not None
    assert len(pinned_model.revision) == 40
    pinned = ModelRef(name, pinned_model.path_or_hub_id, pinned_model.revision, None)
    assert resolve(name) == resolve(name.upper()) == pinned
    assert resolve(name, "main").revision == "main"
    assert resolve(pinned_model.path_or_hub_id).revision == pinned_model.revision


def test_an_unpinned_hub_id_has_the_commit_that_is_cached_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert resolve("org/name").revision is None
    reference = tmp_path / "models--org--name" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("c0ffee\n")
    assert resolve("org/name").revision == "c0ffee"


def test_a_folder_is_identified_by_its_content(tmp_path: Path) -> None:
    original = resolve(str(model_folder(tmp_path / "one")))
    assert (original.name, original.path_or_hub_id, original.revision) == ("one", str(tmp_path / "one"), None)
    same = model_folder(tmp_path / "same", transformers_version="9.9")
    assert original.fingerprint == resolve(str(same)).fingerprint
    weights = bytearray((same / "model.safetensors").read_bytes())
    weights[30_000:30_400] = b"\x01" * 400  # a fine-tune of the same size
    (tuned := model_folder(tmp_path / "tuned") / "model.safetensors").write_bytes(weights)
    (same / "tokenizer.json").write_text("[]")
    folders = (tuned.parent, model_folder(tmp_path / "config", hidden_size=1), same)
    assert len({original.fingerprint, *(resolve(str(folder)).fingerprint for folder in folders)}) == 4


@pytest.mark.parametrize("name", ["", "/nowhere/at/all", "org/", "org/name/more"])
def test_a_wrong_name_is_answered_with_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=r"(valid: r1-distill.* a Hub id ORG/NAME, or a|no such) folder$") as e:
        resolve(name or "?")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("method", "draft", "target"),
    [("scot", "r1-distill-qwen-1.5b", "r1-distill-qwen-32b"), ("vanilla", "r1-distill-qwen-1.5b", "qwq-32b")],
)
def test_the_default_pair_is_the_papers_and_on_a_cpu_a_toy_pair_with_a_notice(
    method: str, draft: str, target: str
) -> None:
    assert default_pair(method, "gpu") == {"draft": draft, "target": target}
    assert tuple(default_pair(method, "cpu").values()) == tuple(models.PAIR)
    names, notice = models.by_role("specreason", ("draft", "target"), {"draft": "org/own", "target": None}, "cpu")
    assert names == {"draft": "org/own", "target": "demo-target"}
    assert notice is not None
    assert {"demo-target,", "--target."} <= set(notice.split())


def test_the_bundled_pair_has_its_folders_and_a_lost_one_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [resolve(name.upper()) for name in models.PAIR]
    assert [ref.name for ref in refs] == list(models.PAIR)
    assert refs[0].fingerprint != refs[1].fingerprint
    assert sum(path.stat().st_size for ref in refs for path in Path(ref.path_or_hub_id).iterdir()) < 20_000_000
    monkeypatch.setenv(models.PAIR_FOLDER, str(tmp_path))
    with pytest.raises(ModelUnavailable, match=r"demo-draft is missing from .*reinstall the package"):
        resolve("demo-draft")


@pytest.mark.parametrize(
    ("architecture", "more", "reason"),
    [
        ("BertForMaskedLM", {}, "BertForMaskedLM does not generate text"),
        ("Qwen2ForProcessRewardModel", {"auto_map": {"AutoModel": "x.X"}}, "does not generate text"),
        ("T5ForConditionalGeneration", {"is_encoder_decoder": True}, "is an encoder-decoder model"),
        ("XForCausalLM", {"auto_map": {"AutoModelForCausalLM": "x.X"}}, None),
        (None, {}, None),
    ],
)
def test_what_writes_no_text_is_known_from_its_name_alone(
    architecture: str | None, more: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    config = {"model_type": "llama", **more, **({"architectures": [architecture]} if architecture else {})}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = models.writes_nothing(tmp_path)
    assert (found is None) if reason is None else (found is not None and reason in found)
