"""The doctor's checks of servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks.inputs import check_servers
from harness.doctor import question_of
from harness.launch_options import PartialLaunch
from harness.weights.tokenizer import HFTokenizer
from tests.harness.checks.question import QUESTION, problem_texts, worst_status
from tests.harness.conftest import save_tokenizer
from tests.harness.engines.served.fake_server import serving

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("servers") / "tokenizer"
    save_tokenizer(path)
    return path


def test_a_server_is_asked_what_it_runs_and_tried(folder: Path) -> None:
    with serving("vllm", HFTokenizer(str(folder))) as fake:
        question = replace(QUESTION, servers={"target": fake.url}, tokenizers={"target": str(folder)})
        checks = list(check_servers(question))
        assert worst_status(checks) == "ok"
        assert checks[0].text.startswith("vllm 0.32.0 with org/story, a context of 4096 tokens")
        other = replace(question, served_models={"target": "other"})
        assert "does not serve 'other'" in problem_texts(list(check_servers(other)))


def test_a_server_that_does_not_answer_is_a_failure_here_and_a_warning_on_a_login_node() -> None:
    question = replace(QUESTION, servers={"target": NOBODY})
    assert worst_status(list(check_servers(question))) == "failure"
    there = list(check_servers(replace(question, cluster="slurm")))
    assert worst_status(there) == "warning"
    assert "the jobs look for a server on their nodes" in problem_texts(there)


def test_served_models_are_asked_for_and_not_looked_for_on_this_machine() -> None:
    flags = {"method": "specreason", "dataset": "demo", "draft": f"{NOBODY}/v1", "target": f"{NOBODY}/v1"}
    question = question_of(PartialLaunch.from_flags({**flags, "cluster": "local"}), on_node=False)
    assert question.engine == "served"
    assert question.servers == {"draft": NOBODY, "target": NOBODY}
    assert not question.models
