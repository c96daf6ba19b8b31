"""What a worker would meet is refused at the launch, unless the run exists already."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from harness.engine import Role
from harness.problems import hub
from harness.settings.launch_settings import Launch
from harness.weights.models import pair_folder
from jobs.drive import create
from jobs.preparation import PreparedLaunch, prepare
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


def test_who_proposes_tokens_is_used() -> None:
    prepared(("draft",), method="specdecode", temperature=0)
    with pytest.raises(ValueError, match="--draft demo-draft: specdecode writes with the target alone"):
        prepared(("draft",), method="specdecode", temperature=0, spec_decode="ngram")


def test_a_model_whose_context_is_below_the_budget_is_refused_and_a_toy_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    with pytest.raises(
        ValueError, match="--token-budget 4096: the context of the draft own is 2048 tokens, prompt incl"
    ):
        prepared(draft=str(folder), token_budget=4096)
    assert len(_short(prepared(token_budget=4096))) == 2
    assert len(_short(prepared(draft=str(folder), target=str(folder), token_budget=2040))) == 2
    assert not _short(prepared(draft=str(folder)))


@pytest.mark.parametrize(
    ("flags", "too_small", "named"),
    [
        ({"method": "vanilla"}, 513, "--token-budget 512"),
        ({"method": "speccot"}, 513, "--token-budget 512"),
        ({"method": "vanilla", "engine": "scripted", "draft": None, "target": None}, 513, "--token-budget 512"),
        ({"method": "scot", "drafts": 3, "draft_tokens": 250}, 700, "--drafts 3 --draft-tokens 250"),
    ],
)
def test_a_context_that_does_not_hold_prompt_and_budget_is_refused_with_the_least_that_does(
    flags: dict[str, Any], too_small: int, named: str
) -> None:
    with pytest.raises(ValueError, match=f"--max-context {too_small}: a prompt and {named} do not fit") as refused:
        prepared(max_context=too_small, **flags)
    found = re.search(r"valid: (\d+)", str(refused.value))
    assert found is not None
    least = int(found[1])
    assert not _short(prepared(max_context=least, **flags))
    with pytest.raises(ValueError, match=f"valid: {least} or more"):
        prepared(max_context=least - 1, **flags)


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


def with_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("flag", "harm", "message"),
    [
        ("draft", lambda folder: halve(folder / "model.safetensors"), "model.safetensors is damaged"),
        ("reward", lambda folder: halve(folder / "model.safetensors"), "model.safetensors is damaged"),
        ("target", lambda folder: with_config(folder, is_encoder_decoder=True), "is an encoder with a decoder"),
        ("draft", lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        ("target", lambda folder: halve(folder / "tokenizer.json"), "its tokenizer cannot be loaded"),
    ],
)
def test_a_model_that_no_worker_could_use_is_refused(
    flag: str, harm: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(pair_folder("demo-draft"), tmp_path / "own")
    harm(folder)
    flags: dict[str, Any] = {"method": "rsd", "reward": "demo-reward", flag: str(folder)}
    with pytest.raises(ValueError, match=f"^--{flag} own: .*{message}") as refused:
        prepared(**flags)
    assert "\n" not in str(refused.value)
    prepared(**flags, engine="scripted")


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
        ("org/none", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/none$"),
        ("org/some@other", None, "not in the cache; HF_HUB_OFFLINE is set: .*: hf download org/some --revision other"),
        ("org/some", "model.safetensors", f"has no weights .*: hf download org/some --revision {COMMIT}"),
        ("org/some", "tokenizer.json", "has no tokenizer.json.*: hf download org/some"),
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
    [notice, *_] = prepared(draft="org/unseen").plan.notices
    assert "--draft org/unseen" in notice
    assert prepared().plan.notices == []


@pytest.mark.parametrize("error", [RepositoryNotFoundError, HfHubHTTPError])  # a mirror does not say why
def test_an_id_that_the_hub_does_not_know_is_refused(
    error: type[HfHubHTTPError], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def unknown(self: HfApi, repo_id: str, **_: Any) -> None:
        asked.append(repo_id)
        raise error("404", response=_Response())  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "model_info", unknown)
    prepared(draft="some/where")  # the hub is not asked while this machine is offline
    monkeypatch.setattr(hub, "is_offline", lambda: False)
    monkeypatch.setattr(hub, "is_reachable", lambda seconds: True)
    with pytest.raises(ValueError, match="--draft some/where: the hub has no such model, or it is private"):
        prepared(draft="some/where")
    assert asked == ["some/where"]


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
