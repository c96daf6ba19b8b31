"""What the doctor says of a run, as a launch would; its checks with engines fail where a rule is broken."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from harness.checks import engine_answers
from harness.checks.engine_answers import Machine, Measured, NotPossible, deviations
from harness.checks.finding import Question
from harness.doctor import main as doctor
from harness.engine import Choice, Sampling, Timing, VerdictUnavailable
from harness.engines.scripted import ScriptedEngine
from harness.problems.benchmarks import KNOWN_HASHES
from harness.settings.launch_settings import PartialLaunch
from harness.weights.models import pair_folder
from harness.weights.tokenizer import HFTokenizer
from jobs import engine_checks
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
    folder = shutil.copytree(pair_folder("demo-target"), tmp_path / "torn")
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
    question = asked({"target": "demo-target"}, method="specdecode", engine="transformers", spec_decode="ngram")
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


def machine(work: Path, **values: Any) -> Machine:
    return Machine(**{"kind": "scripted", "device": "cpu", "draft": None, "target": None, "work": str(work), **values})


async def test_every_check_of_scripted_engines_passes_or_says_why_it_is_not_possible(tmp_path: Path) -> None:
    passed = []
    for name, make in engine_checks.CHECKS.items():
        outcome = await engine_checks.outcome_of(name, make, machine(tmp_path))
        if outcome.status == "ok":
            passed.append(name)
        else:
            assert outcome.status == "not possible here", outcome
            assert outcome.reason
    assert passed == ["start", "calls", "prefix-cache", "worker-killed", "preempted"]


def test_the_command_prints_a_line_for_every_check() -> None:
    done = CliRunner().invoke(doctor, ["--engines", "--engine", "scripted", "--json", "--only", "start"])
    [check] = json.loads(done.stdout)["checks"]
    assert (done.exit_code, check["check"], check["status"]) == (0, "start", "ok")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--only", "start,speed"], "--only speed: no such check"),
        (["--target", "no/such/model/here"], "no/such/model/here"),
        (["--dataset", "demo"], "--dataset"),
    ],
)
def test_wrong_flags_are_one_line_and_exit_code_2(words: list[str], named: str) -> None:
    done = CliRunner().invoke(doctor, ["--engines", *words])
    assert (done.exit_code, len(done.stderr.splitlines()), named in done.stderr) == (2, 1, True)


def test_a_check_without_an_answer_or_whose_process_dies_fails(tmp_path: Path) -> None:
    outcome = engine_checks.in_process(machine(tmp_path), "preempted", 0.01)
    assert (outcome.status, bool(outcome.reason)) == ("failed", True)
    assert not [child for child in psutil.Process().children() if "--multiprocessing-fork" in child.cmdline()]
    outcome = engine_checks.in_process(machine(tmp_path), "nothing", 60)
    assert (outcome.status, outcome.reason[-1]) == ("failed", "1"), "its exit code"


def found(*measured: Measured) -> engine_checks.MakeCheck:
    async def make(_: Machine) -> list[Measured]:
        return list(measured)

    return make


@pytest.mark.parametrize(
    ("value", "relation", "bound", "status"),
    [
        (1, "=", 1, "ok"),
        (2, "=", 1, "failed"),
        (0.9, ">=", 0.9, "ok"),
        (10.0, "<", 10.0, "failed"),
        (None, "<", 10.0, "failed"),
        (2.0, None, None, "ok"),
    ],
)
async def test_a_goal_that_is_missed_or_was_not_measured_fails(
    value: Any, relation: Any, bound: Any, status: str, tmp_path: Path
) -> None:
    outcome = await engine_checks.outcome_of("a", found(Measured("n", value, "", relation, bound)), machine(tmp_path))
    assert (outcome.status, outcome.reason) == (status, "" if status == "ok" else "not met: n")


@pytest.mark.parametrize(
    ("error", "status"), [(NotPossible("why"), "not possible here"), (RuntimeError("why"), "failed")]
)
async def test_what_a_check_raises_is_its_reason(error: Exception, status: str, tmp_path: Path) -> None:
    async def make(_: Machine) -> list[Measured]:
        raise error

    outcome = await engine_checks.outcome_of("a", make, machine(tmp_path))
    assert outcome.status == status
    assert "why" in outcome.reason


def opening(engines: Iterator[ScriptedEngine]) -> Callable[..., Any]:
    """`open_engines` that takes its engines from these, in the order of the roles."""

    @contextlib.asynccontextmanager
    async def opened(draft: object, target: object, roles: Sequence[str], *_: object) -> AsyncIterator[object]:
        yield {role: next(engines) for role in roles}

    return opened


def engine(text: str = "so it is 4.\n\n", **settings: Any) -> ScriptedEngine:
    def write(prompt: str, sampling: Sampling) -> list[str]:
        return [text] * sampling.n

    return ScriptedEngine(write, lambda prompt, options: [1 / len(options)] * len(options), **settings)


async def test_calls_without_an_answer_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Silent(ScriptedEngine):
        async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
            raise VerdictUnavailable("no probability")

    broken = Silent(engine().write, engine().judge)
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter([engine(), broken])))
    answered, unanswered = await engine_answers.check_calls(machine(tmp_path))
    assert (answered.value, answered.is_met) == (5, False)
    assert str(unanswered.value).startswith("verdict (VerdictUnavailable: ")


async def test_an_engine_that_forgets_its_prompts_misses_the_prefix_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Forgetful(ScriptedEngine):
        def _cached(self, ids: Sequence[int]) -> int:
            return 0

    broken = [Forgetful(engine().write, engine().judge) for _ in range(2)]
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter(broken)))
    [cached] = await engine_answers.check_prefix_cache(machine(tmp_path))
    assert (cached.value, cached.is_met) == (0.0, False)


@pytest.mark.parametrize("text", ["so it is 4.\n\n", "so it is 5.\n\n"])
async def test_speculation_that_changes_a_completion_is_not_lossless(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_answers, "open_engines", opening(iter([engine(), engine(text)])))
    [changed] = await engine_answers.check_lossless(machine(tmp_path, kind="vllm"), "ngram")
    assert changed.value == (0 if "4" in text else 6)
    assert changed.is_met == ("4" in text)


def choice(*logprobs: float) -> Choice:
    return Choice(logprobs, 1, 0, Timing(0.0, 0.0, 0.0, 0.0, 1))


@pytest.mark.parametrize(
    ("shift", "is_float32", "is_met"), [(0.01, False, True), (0.1, False, False), (0.01, True, False)]
)
def test_verdicts_may_differ_by_rounding_only(shift: float, is_float32: bool, is_met: bool) -> None:
    measured = deviations([choice(-0.5 + shift, -1.0)], [choice(-0.5, -1.0 - shift)], is_float32=is_float32)
    assert all(one.is_met for one in measured) == is_met
