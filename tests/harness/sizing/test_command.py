"""`python -m harness.sizing`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.sizing.__main__ import main
from tests.own_methods import no_methods, write_method

__all__ = ["no_methods"]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path_factory.mktemp("cache")))


def output(*arguments: str) -> str:
    return CliRunner().invoke(main, arguments, prog_name="sizing", catch_exceptions=False).output


def test_the_tokens_that_a_draft_proposes_are_part_of_the_target_s_engine() -> None:
    alone, proposed = (output("--gpus", "4xH100-80", "--method", method) for method in ("vanilla", "specdecode"))
    assert "945,376" in alone
    assert "718,096" in proposed  # as harness.launch --method specdecode plans it
    assert "r1-distill-qwen-1.5b" in proposed


@pytest.mark.usefixtures("no_methods")
def test_a_method_and_prompts_of_ones_own_are_sized(tmp_path: Path) -> None:
    method = f"{write_method(tmp_path)}:Confident"
    cards = ("--gpus", "4xH100-80")
    assert "9,216 / 9,216" in output(*cards, "--method", method)
    longer = output(*cards, "--method", method, "--prompt-tokens", "5000", "--token-budget", "100")
    assert "5,100 / 5,100" in longer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "rsd"), "--reward: rsd requires a reward model"),
        (("--method", "vanilla", "--draft", "qwq-32b"), "--draft: not used by vanilla, which uses: target"),
        (("--target", "nobody/nothing"), "nobody/nothing is unknown: its config.json is not available locally"),
        (("--target", "m" * 300), "unknown model 'mmm"),
        (("--draft.tensor-parallel", "7"), "12 attention heads are not divisible by 7; valid: 1, 2, 4"),
    ],
)
def test_what_cannot_be_sized_is_one_line(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, words, prog_name="sizing")
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "is not a valid configuration (maximum recursion depth"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "is not a valid configuration (Exceeds the limit"),
        (json.dumps({"num_attention_heads": 4000, "hidden_size": 1536}), "has 4000 attention heads"),
    ],
)
def test_a_strange_configuration_is_one_line_that_names_the_file(content: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "a[/b]"  # is no markup
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(content)
    text = output("--target", str(folder))
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert message in text
    assert "config.json" in text
