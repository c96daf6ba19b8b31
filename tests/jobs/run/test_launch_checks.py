"""What a worker would meet is refused at the launch, unless the run exists already."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from rich.console import Console

from harness.engine import Role
from harness.problems import hub
from harness.settings.launch_settings import Launch
from harness.weights.models import pair_folder
from jobs.drive import create
from jobs.preparation import PreparedLaunch, prepare, print_plan
from jobs.run.plan import check_contexts
from jobs.run.sizing import ServedRole

BUDGET = 512


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "is_offline", lambda: True)


def prepared(typed: tuple[str, ...] = (), **flags: Any) -> PreparedLaunch:
    common: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "vllm", "limit": 2, "cluster": "local"}
    common |= {"draft": "demo-draft", "target": "demo-target", "token_budget": BUDGET}
    return prepare(Launch.from_flags(common | flags), typed)


@pytest.mark.parametrize(
    ("typed", "flags", "message"),
    [
        ("draft", {"draft": "nosuch"}, "--draft nosuch: vanilla --model target writes with the target alone"),
        ("draft_memory", {"draft_memory": 0.1}, "--draft.memory 0.1: vanilla --model target"),
        ("target", {"target": "nosuch", "model": "draft"}, "--target nosuch: vanilla --model draft writes with"),
    ],
)  # fmt: skip
def test_a_typed_flag_of_a_model_that_is_not_used_is_refused(typed: str, flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepared((typed,), method="vanilla", **flags)
    prepared((), method="vanilla", **flags)  # as a preset, a file or a suite gives it to every method


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_model_whose_tokenizer_cannot_be_loaded_is_refused_in_one_line(file: str, tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-target"), tmp_path / "torn")
    (folder / file).write_bytes((folder / file).read_bytes()[:100])
    with pytest.raises(ValueError, match=r"^--target torn: its tokenizer cannot be loaded .*: download it again$"):
        prepared(target=str(folder))


def test_who_proposes_tokens_is_used() -> None:
    prepared(("draft",), method="specdecode", temperature=0)
    with pytest.raises(ValueError, match="--draft demo-draft: specdecode writes with the target alone"):
        prepared(("draft",), method="specdecode", temperature=0, spec_decode="ngram")


def test_a_context_below_the_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="--max-context 500: a prompt and --token-budget 512 do not fit; valid: "):
        prepared(max_context=500)
    assert not _short(prepared(max_context=1500))


def test_a_model_whose_context_is_below_the_budget_is_refused_and_a_toy_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    with pytest.raises(
        ValueError, match="--token-budget 4096: the context of the draft own is 2048 tokens, prompt incl"
    ):
        prepared(draft=str(folder), token_budget=4096)
    assert len(_short(prepared(token_budget=4096))) == 2
    assert len(_short(prepared(draft=str(folder), target=str(folder), token_budget=2040))) == 2
    assert not _short(prepared(draft=str(folder)))


def test_drafts_that_the_target_cannot_read_at_once_are_refused_with_the_least_context_that_holds_them() -> None:
    flags: dict[str, Any] = {"method": "scot", "drafts": 3, "draft_tokens": 250, "engine": "transformers"}
    message = (
        r"--max-context 700: a prompt and --drafts 3 --draft-tokens 250 do not fit; valid: (\d+) or more, or a smaller"
    )
    with pytest.raises(ValueError, match=message) as refused:
        prepared(max_context=700, **flags)
    found = re.search(message, str(refused.value))
    assert found is not None
    least = int(found[1])
    assert 3 * 250 < least < 3 * 250 + 150, "the real prompt's length, and no reserve"
    assert not _short(prepared(max_context=least, **flags))
    with pytest.raises(ValueError, match=f"valid: {least} or more"):
        prepared(max_context=least - 1, **flags)
    prepared(method="vanilla", max_context=700)
    with pytest.raises(ValueError, match=r"--drafts 5 --token-budget 512 do not fit"):
        prepared(method="scot", max_context=1024)  # default drafts, which the budget makes shorter


def test_drafts_that_only_the_models_own_context_does_not_hold_are_named() -> None:
    [notice] = _short(prepared(method="scot", drafts=5, draft_tokens=512))
    assert "the target demo-target is 2048 tokens, and a prompt and --drafts 5 --draft-tokens 512 may need" in notice


@pytest.mark.parametrize("method", ["vanilla", "specreason", "speccot"])
def test_a_context_holds_the_longest_prompt_and_the_budget_for_every_method(method: str) -> None:
    with pytest.raises(ValueError, match=r"valid: (\d+) or more") as refused:
        prepared(method=method, max_context=513, limit=8)
    found = re.search(r"valid: (\d+) or more", str(refused.value))
    assert found is not None
    assert not _short(prepared(method=method, max_context=int(found[1]), limit=8))
    with pytest.raises(ValueError, match="do not fit"):
        prepared(method=method, max_context=int(found[1]) - 1, limit=8)


def test_the_prompts_of_scripted_engines_are_known_too() -> None:
    flags: dict[str, Any] = {"engine": "scripted", "draft": None, "target": None}
    with pytest.raises(ValueError, match="--max-context 600: a prompt and --token-budget 512 do not fit"):
        prepared(max_context=600, **flags)
    assert not _short(prepared(max_context=1024, **flags))


def test_without_a_tokenizer_only_what_is_sure_is_refused() -> None:
    [*notices] = _short(prepared(method="vanilla", draft=None, target="nobody/nothing", max_context=700))
    assert len(notices) == 1
    with pytest.raises(ValueError, match="--max-context 512: a prompt and --token-budget 512 do not fit"):
        prepared(method="vanilla", draft=None, target="nobody/nothing", max_context=512)


@pytest.mark.parametrize(("context", "ends"), [(500, "refused"), (520, "warned of"), (2048, "fits"), (None, "unknown")])
def test_the_context_of_a_server_counts_as_that_of_a_model(context: int | None, ends: str) -> None:
    launch = prepared(method="vanilla", draft=None)
    assert launch.plan.spec.target is not None
    served = replace(launch.plan.spec.target, model="served", server="vllm")
    of_target: dict[Role, ServedRole] = (
        {} if context is None else {"target": ServedRole(served, "http://host:1/v1", [], context)}
    )
    spec = replace(launch.plan.spec, target=served)
    found = check_contexts(replace(launch.plan, spec=spec, served=of_target))
    if ends == "refused":
        with pytest.raises(ValueError, match="--token-budget 512: the context of the target served is 500 tokens"):
            list(found)
    else:
        assert len(list(found)) == (ends == "warned of")


def _short(launch: PreparedLaunch) -> list[str]:
    return [notice for notice in launch.plan.notices if notice.startswith("SHORT CONTEXT")]


def test_answers_of_own_prompts_that_are_not_one_token_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[equivalence]\nsame = 'the very same'\ndifferent = 'no'")
    message = "for the target demo-target, these labels are not one distinct token each after .*: the very same, no"
    with pytest.raises(ValueError, match=f"--prompts {file}: {message}"):
        prepared(method="lookahead", prompts=str(file))
    prepared(prompts=str(file))  # speccot does not ask it


def test_own_prompts_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[instruction.thinking]\nmath = "Think."\n[score]\nquestion = "Right?"\n')
    launch = prepared(prompts=str(file))
    print_plan(launch, Console(file=sys.stdout, width=200))
    shown = capsys.readouterr().out
    assert f"own prompts: instruction.thinking.math, score.question; hash {launch.plan.spec.prompt_hash}" in shown
    print_plan(prepared(), Console(file=sys.stdout, width=200))
    assert "own prompts" not in capsys.readouterr().out


@pytest.mark.parametrize(("missing", "part"), [("tokenizer*", "tokenizer"), ("*.safetensors", "weights")])
def test_a_folder_without_all_that_a_model_has_is_refused(missing: str, part: str, tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    for file in folder.glob(missing):
        file.unlink()
    with pytest.raises(ValueError, match=f"--draft own: {folder} has no {part}"):
        prepared(draft=str(folder))


def with_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("flag", ["draft", "target", "reward"])
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: halve(folder / "model.safetensors"), "model.safetensors is damaged"),
        (lambda folder: with_config(folder, is_encoder_decoder=True), "config.json: .* is an encoder with a decoder"),
    ],
)
def test_a_model_that_no_worker_could_use_is_refused(
    flag: str, harm: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    harm(folder)
    flags: dict[str, Any] = {"method": "rsd", "reward": "demo-reward", flag: str(folder)}
    with pytest.raises(ValueError, match=f"^--{flag} own: {folder}.*{message}"):
        prepared(**flags)
    prepared(**flags, engine="scripted")


def test_torn_weights_that_propose_tokens_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    (folder / "tokenizer.json").unlink()  # they read the target's tokens
    flags: dict[str, Any] = {"method": "specdecode", "draft": None, "spec_decode": "draft", "temperature": 0}
    prepared(**flags, spec_model=str(folder))
    halve(folder / "model.safetensors")
    with pytest.raises(ValueError, match=f"--spec-model own: {folder}/model.safetensors is damaged"):
        prepared(**flags, spec_model=str(folder))


def test_an_adapter_that_git_has_not_fetched_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (tmp_path / "adapter_model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\nsize 12\n")
    with pytest.raises(ValueError, match=r"--target.adapter .*: adapter_model\.safetensors is a Git LFS pointer"):
        prepared(method="scot", target_adapter=str(tmp_path))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache with org/some, which it knows as main, and HF_HUB_OFFLINE set."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "offline_by", lambda: "HF_HUB_OFFLINE")
    repository = tmp_path / "hub" / "models--org--some"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return shutil.copytree(pair_folder("demo-draft"), repository / "snapshots" / COMMIT)


@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("org/some", None, None),
        ("org/some@main", None, None),
        (f"org/some@{COMMIT}", None, None),
        ("org/none", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/none$"),
        ("org/some@other", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/some --revision other"),
        ("org/some", "model.safetensors", f"has no weights .*: hf download org/some --revision {COMMIT}"),
        ("org/some", "tokenizer.json", "has no tokenizer.json.*: hf download org/some"),
        ("org/some", "config.json", "has no config.json.*: hf download org/some"),
        ("qwq-32b", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download Qwen/QwQ-32B --revision "),
    ],
)
def test_what_is_not_in_the_cache_is_refused_where_the_hub_is_not_asked(
    cached: Path, name: str, harm: str | None, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if harm:
        (cached / harm).unlink()
    if message is None:
        prepared(draft=name)
        return
    with pytest.raises(ValueError, match=f"--draft .*{message}"):
        prepared(draft=name)
    monkeypatch.setattr("jobs.preparation.resolve", lambda cluster: "slurm")
    prepared(draft=name, slurm=("setup=export HF_HOME=/nodes/own",))
    monkeypatch.setattr(hub, "offline_by", lambda: None)  # the workers download what is missing
    prepared(draft=name)


def test_damaged_files_in_the_cache_are_refused_though_the_hub_may_be_asked(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "offline_by", lambda: None)
    halve(cached / "model.safetensors")
    with pytest.raises(ValueError, match=r"--draft org/some: .*/model.safetensors is damaged .*: download it again$"):
        prepared(draft="org/some")


def test_an_id_that_nobody_could_ask_the_hub_about_is_named() -> None:
    assert (
        "NOT CHECKED: --draft org/unseen is not in this machine's cache" in prepared(draft="org/unseen").plan.notices[0]
    )
    assert prepared().plan.notices == []


def test_tokens_at_a_time_need_a_proposer() -> None:
    with pytest.raises(ValueError, match="--spec-tokens 3: needs --spec-decode draft, ngram, suffix, eagle3, mtp"):
        prepared(spec_tokens=3)


def test_what_the_memory_plan_does_not_count_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.preparation.resolve", lambda cluster: "slurm")
    lines = prepared(target_engine=("quantization=fp8",), gpus_per_node="h100:1").sizes
    assert "memory: planned without quantization; --draft.memory and --target.memory set the shares" in lines


def test_an_id_that_the_hub_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unknown(self: HfApi, repo_id: str, **_: Any) -> None:
        asked.append(repo_id)
        raise RepositoryNotFoundError("404", response=_Response())  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "model_info", unknown)
    prepared(draft="some/where")  # the hub is not asked while this machine is offline
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    monkeypatch.setattr(hub, "is_reachable", lambda seconds: True)
    with pytest.raises(ValueError, match="--draft some/where: the hub has no such model, or it is private"):
        prepared(draft="some/where")
    assert asked == ["some/where"]
    monkeypatch.setattr(HfApi, "model_info", _no_such_page)
    with pytest.raises(ValueError, match="--draft some/where: the hub has no such model, or it is private"):
        prepared(draft="some/where")
    prepared(draft="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B")


def _no_such_page(*_: Any, **__: Any) -> None:
    """A mirror of the hub that does not say why."""
    raise HfHubHTTPError("404", response=_Response())  # type: ignore[arg-type]


class _Response:
    """As much of a reply as the error reads."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.request = None
        self.status_code = 404


def test_a_run_that_exists_is_not_refused() -> None:
    launch = prepared(method="vanilla")
    create(launch)
    assert prepared(("draft",), method="vanilla", draft="nosuch").run == launch.run
