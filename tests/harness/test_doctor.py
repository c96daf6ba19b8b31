"""The doctor finds what is wrong: every failure here is made on the spot, none is pretended inside the checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks import data, every, hardware, model_files, packages, storage
from harness.checks.check import Check, Question, Status
from harness.checks.tokenizers import check_tokenizers
from jobs import slurm
from jobs.slurm_checks import check_slurm
from tests.harness.conftest import save_tokenizer

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "harness" / "data" / "demo.jsonl"
QUESTION = Question(engine="vllm", output="/nowhere", models={}, tensor_parallel={"draft": 1, "target": 1})


def worst(checks: list[Check]) -> Status:
    statuses = [check.status for check in checks]
    return "failure" if "failure" in statuses else "warning" if "warning" in statuses else "ok"


def said(checks: list[Check]) -> str:
    return "\n".join(check.text for check in checks if check.status != "ok")


def doctor(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.doctor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


# Models


def write_shard(path: Path, num_bytes: int = 64) -> None:
    header = json.dumps({"w": {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_bytes))


def write_model(folder: Path) -> Path:
    """A folder of the right form with two files of weights."""
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


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard is missing": (lambda f: (f / SECOND).unlink(), "1 of 2 files of weights are missing (model-00002"),
    "a shard is empty": (lambda f: (f / SECOND).write_bytes(b""), f"{SECOND} is empty"),
    "a shard is cut off": (lambda f: cut(f / SECOND), f"{SECOND} is cut off at"),
    "a shard is a Git LFS pointer": (
        lambda f: (f / SECOND).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        "git lfs pull",
    ),
    "a shard is something else": (lambda f: (f / SECOND).write_text("<html>Not found</html>" * 9), "no safetensors"),
    "numbered shards without their index": (
        lambda f: remove(f, SECOND, INDEX),
        "1 of 2 files of weights are missing",
    ),
    "no weights": (lambda f: remove(f, *(p.name for p in f.glob("model*"))), "no weights"),
    "the index is broken": (lambda f: cut(f / INDEX), "no index of weights"),
    "no config.json": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "a broken config.json": (lambda f: cut(f / "config.json"), "is no model's configuration"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "holds no tokenizer.json"),
    "an empty tokenizer": (lambda f: (f / "tokenizer.json").write_text(""), "holds no tokenizer.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_folder_is_a_failure_that_says_what_is_missing(tmp_path: Path, damage: str) -> None:
    folder = write_model(tmp_path / "model")
    assert worst(model_files.find("target", str(folder), QUESTION).checks) == "ok"
    harm, text = DAMAGES[damage]
    harm(folder)
    checks = model_files.find("target", str(folder), QUESTION).checks
    assert worst(checks) == "failure"
    assert text in said(checks)


def test_a_context_shorter_than_the_token_budget_is_a_warning(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    checks = model_files.find("draft", str(folder), replace(QUESTION, token_budget=40_000)).checks
    assert worst(checks) == "warning"
    assert "less than --token-budget 40000" in said(checks)


_FIND = """
import json, sys
from dataclasses import asdict
from harness.checks import model_files
from harness.checks.check import Question
question = Question("vllm", "/nowhere", {}, {})
print(json.dumps([asdict(check) for check in model_files.find("target", sys.argv[1], question).checks]))
"""


def find_in_cache(cache: Path, name: str) -> list[Check]:
    """In a process of its own: the hub's library reads these variables when it is imported."""
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _FIND, name], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return [Check(**check) for check in json.loads(done.stdout)]


def test_a_model_that_is_not_in_the_cache_offline_is_a_failure_that_says_what_to_type(tmp_path: Path) -> None:
    checks = find_in_cache(tmp_path, "org/none@abc")
    assert worst(checks) == "failure"
    assert "HF_HUB_OFFLINE is set" in said(checks)
    assert "hf download org/none --revision abc" in said(checks)


def test_a_cached_model_is_whole_only_with_every_blob(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--org--some"
    folder = write_model(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert worst(find_in_cache(tmp_path, "org/some")) == "ok"
    (folder / SECOND).unlink()
    (folder / SECOND).symlink_to(repository / "blobs" / "gone")
    checks = find_in_cache(tmp_path, "org/some")
    assert "1 of 2 files of weights are missing" in said(checks)


# Tokenizers


def save_word_tokenizer(folder: Path) -> None:
    """Knows words but no digit: every digit is the same unknown token."""
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
    question = replace(QUESTION, method="specreason")
    checks = list(check_tokenizers({"draft": tmp_path / "broken", "target": tmp_path / "words"}, question))
    assert [(check.subject, check.status) for check in checks] == [
        ("draft tokenizer", "failure"),
        ("target tokenizer", "failure"),
    ]
    assert "these labels are not one distinct token each behind 'Score:'" in checks[1].text


def test_good_tokenizers_are_said_to_share_their_vocabulary_or_not(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "one")
    save_tokenizer(tmp_path / "two", added=("<think>", "</think>"))
    checks = list(check_tokenizers({"draft": tmp_path / "one", "target": tmp_path / "two"}, QUESTION))
    assert worst(checks) == "ok"
    assert "0 1 2 3 4 5 6 7 8 9" in checks[1].text
    assert "different" in checks[2].text


# Dataset


def test_the_bundled_dataset_is_the_known_one() -> None:
    [check] = data.check_dataset(replace(QUESTION, dataset="demo"))
    assert check.status == "ok"
    assert "40 problems" in check.text


def test_a_wrong_count_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").write_bytes(b"".join(DEMO.read_bytes().splitlines(keepends=True)[:-1]))
    [check] = data.check_dataset(replace(QUESTION, dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "39 problems, demo should have 40" in check.text


def test_a_changed_answer_is_a_warning_with_both_hashes(tmp_path: Path) -> None:
    first, *others = DEMO.read_bytes().splitlines(keepends=True)
    record = {**json.loads(first), "answer": "-1"}
    (tmp_path / "demo.jsonl").write_bytes(json.dumps(record).encode() + b"\n" + b"".join(others))
    [check] = data.check_dataset(replace(QUESTION, dataset="demo", data_dir=str(tmp_path)))
    assert check.status == "warning"
    assert f"not {data.KNOWN_HASHES['demo']}" in check.text


def test_a_dataset_that_is_nowhere_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    [check] = data.check_dataset(replace(QUESTION, dataset="aime25", data_dir=str(tmp_path)))
    assert check.status == "failure"
    assert "--data-dir" in check.text


# Output folder


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a filesystem in memory with the given options; skips where that is not allowed."""
    point = tmp_path / "mounted"
    point.mkdir()

    def mounted(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(point)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not allowed here")
        return point

    yield mounted
    subprocess.run(["umount", str(point)], capture_output=True, check=False)


def look_at(output: Path) -> list[Check]:
    return list(storage.check_storage(replace(QUESTION, output=str(output))))


def test_a_good_output_folder_is_ok_and_left_as_it_was(tmp_path: Path) -> None:
    checks = look_at(tmp_path / "not" / "yet")
    assert not [check for check in checks if check.status == "failure"]
    assert {"output", "writing", "file locking", "room"} <= {check.subject for check in checks}
    assert "will be made" in checks[0].text
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_filesystem_is_a_failure(mount: Callable[[str], Path]) -> None:
    [check] = look_at(mount("ro") / "runs")
    assert check.status == "failure"
    assert "Read-only" in check.text
    assert "--output" in check.text


def test_a_file_in_the_place_of_the_output_folder_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert worst(look_at(tmp_path / "file" / "runs")) == "failure"


def test_a_full_filesystem_is_a_failure(mount: Callable[[str], Path]) -> None:
    checks = {check.subject: check for check in look_at(mount("size=16k"))}
    assert checks["writing"].status == "failure"
    assert "No space left" in checks["writing"].text
    assert checks["room"].status == "failure"


def test_a_filesystem_in_memory_is_a_warning(mount: Callable[[str], Path]) -> None:
    checks = {check.subject: check for check in look_at(mount("size=200m"))}
    assert checks["output filesystem"].status == "warning"
    assert checks["file locking"].status == "ok"
    assert checks["room"].status == "warning"


_CALLS = """
#include <errno.h>
int flock(int file, int operation) { %s }
int fsync(int file) { %s }
"""
_CHECK = """
import json, sys
from dataclasses import asdict
from harness.checks import storage
from harness.checks.check import Question
print(json.dumps([asdict(check) for check in storage.check_storage(Question("vllm", sys.argv[1], {}, {}))]))
"""


@pytest.mark.parametrize(
    ("flock", "fsync", "subject", "says"),
    [
        ("errno = ENOLCK; return -1;", "return 0;", "file locking", "No locks available"),
        ("errno = ENOSYS; return -1;", "return 0;", "file locking", "does not work there"),
        ("return 0;", "return 0;", "file locking", "got a lock that the first one held"),
        ("return 0;", "errno = EIO; return -1;", "writing", "Input/output error"),
    ],
    ids=["no locks", "locks not supported", "locks of one node only", "fsync fails"],
)
def test_a_filesystem_without_locks_or_fsync_is_a_failure(
    tmp_path: Path, flock: str, fsync: str, subject: str, says: str
) -> None:
    """The system calls answer as such a filesystem's would."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    (tmp_path / "calls.c").write_text(_CALLS % (flock, fsync))
    library = tmp_path / "calls.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "calls.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    [check] = [Check(**found) for found in json.loads(done.stdout) if found["subject"] == subject]
    assert check.status == "failure"
    assert says in check.text


def test_a_check_that_breaks_or_hangs_is_said_so_and_the_others_answer() -> None:
    def broken() -> list[Check]:
        raise KeyError("surprise")

    def hanging() -> list[Check]:
        time.sleep(15)
        return []

    question = replace(QUESTION, engine="scripted", output="/tmp", limit_seconds=10)
    found = {check.subject: check for check in every.checks(question, {"one": broken, "other": hanging})}
    assert (found["one"].status, "surprise" in found["one"].text) == ("failure", True)
    assert (found["other"].status, "not looked at within 10 s" in found["other"].text) == ("warning", True)
    assert found["python"].status == "ok"


# Packages, devices, Slurm


def test_packages_that_are_missing_or_of_another_version_are_failures_with_their_remedy() -> None:
    lines = ["click>=8", "rich<1", "no-such-package-of-ours>=2", 'never-needed; python_version < "3"']
    checks = list(packages.check_packages(lines))
    assert [check.status for check in checks] == ["failure", "failure", "ok"]
    assert 'pip install "rich<1"' in checks[0].text
    assert 'not installed: pip install "no-such-package-of-ours>=2"' in checks[1].text


def test_an_old_python_is_a_failure() -> None:
    assert packages.check_python(">=4").status == "failure"
    assert packages.check_python().status == "ok"


def fake_vllm(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A package of that name that is found before any other."""
    (folder / "vllm" / "engine").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text(f"__version__ = '0.1'\n{body}\n")
    (folder / "vllm" / "engine" / "__init__.py").touch()
    dataclass = "import dataclasses\n@dataclasses.dataclass\nclass AsyncEngineArgs: pass\n"
    (folder / "vllm" / "engine" / "arg_utils.py").write_text(dataclass)
    (folder / "vllm" / "sampling_params.py").write_text("class SamplingParams: pass\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("raise ImportError('libcudart.so.12: no such file')", "failure", "libcudart.so.12: no such file"),
        ("import os; os._exit(9)", "failure", "ended with status 9"),
        ("import time; time.sleep(60)", "warning", "not imported within 5 s"),
        ("", "failure", "does not know"),
    ],
    ids=["broken", "crashing", "hanging", "too old"],
)
def test_a_vllm_that_cannot_be_used_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, status: Status, says: str
) -> None:
    fake_vllm(tmp_path, monkeypatch, body)
    checks = [
        c for c in packages.check_engine(replace(QUESTION, probe_seconds=5)) if "imported" in c.text or "know" in c.text
    ]
    assert (worst(checks), says in said(checks)) == (status, True), checks


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: X" && exit\n{answer}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("answer", "ranks", "status", "says"),
    [
        ("echo 'NVIDIA H200, 143771, 0, 570.1'", 1, "ok", ""),
        ("echo 'NVIDIA H200, 143771, 90000, 570.1'", 1, "warning", "90000 MiB are in use by others"),
        ("echo 'NVIDIA H200, 143771, 0, 570.1'", 2, "failure", "1 of 2 that --target-tensor-parallel"),
        ("echo 'Failed to initialize NVML'; exit 18", 1, "failure", "Failed to initialize NVML"),
    ],
)
def test_gpus_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, ranks: int, status: Status, says: str
) -> None:
    nvidia_smi(tmp_path, monkeypatch, answer)
    checks = list(hardware.check_devices(replace(QUESTION, tensor_parallel={"target": ranks})))
    assert worst(checks) == status
    assert says in said(checks)


def test_a_job_that_asked_for_gpus_and_sees_none_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    question = replace(QUESTION, on_node=True, sbatch={"gpus-per-node": "2"})
    assert worst(list(hardware.check_devices(question))) == "failure"


def test_weights_larger_than_the_memory_are_a_warning() -> None:
    small = hardware.check_room({"target": 1 << 20}, QUESTION)
    large = hardware.check_room({"draft": 1 << 20, "target": 1 << 50}, QUESTION)
    assert small is not None
    assert large is not None
    assert (small.status, large.status) == ("ok", "warning")


def test_no_slurm_is_a_failure_only_where_slurm_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [asked] = check_slurm(replace(QUESTION, cluster="slurm"))
    [unasked] = check_slurm(replace(QUESTION, cluster="local"))
    assert (asked.status, unasked.status) == ("failure", "ok")
    assert "sbatch" in asked.text


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="Slurm's commands are not installed")
def test_a_controller_that_does_not_answer_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = tmp_path / "slurm.conf"
    configuration.write_text("ClusterName=none\nSlurmctldHost=localhost\nSlurmctldPort=9\nAuthType=auth/none\n")
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    [check] = check_slurm(replace(QUESTION, cluster="slurm"))
    assert check.status == "failure"
    assert "no controller answers" in check.text


needs_slurm = pytest.mark.skipif(
    "SLURM_CONF" not in os.environ or not slurm.controller_answers(), reason="no Slurm answers: set SLURM_CONF"
)
ON_NODE = ("--on-node", "--engine", "scripted", "--dataset", "demo", "--json")


@needs_slurm
def test_a_node_answers_the_same_questions(tmp_path: Path) -> None:
    result = doctor(*ON_NODE, "--cpus-per-task", "1", "--mem", "1G", cwd=tmp_path)
    tables = json.loads(result.stdout)
    here, node = ({check["subject"]: check for check in tables[side]["checks"]} for side in ("here", "node"))
    assert "job" not in node, node
    assert node["locks across nodes"]["status"] == "ok"
    assert node["dataset"] == here["dataset"]
    assert not (tmp_path / "runs").exists()


@needs_slurm
def test_options_that_sbatch_refuses_are_failures_in_its_own_words(tmp_path: Path) -> None:
    result = doctor(*ON_NODE, "--partition", "no-such", cwd=tmp_path)
    assert result.returncode == 1
    tables = json.loads(result.stdout)
    [here] = [check for check in tables["here"]["checks"] if check["subject"] == "sbatch"]
    [node] = tables["node"]["checks"]
    assert (here["status"], node["status"]) == ("failure", "failure")
    assert "invalid partition" in here["text"]
    assert "invalid partition" in node["text"]


@needs_slurm
def test_a_job_that_does_not_start_is_said_so_and_cancelled(tmp_path: Path) -> None:
    result = doctor(*ON_NODE, "--slurm", "begin=now+1hour", "--wait", "8", cwd=tmp_path)
    [check] = json.loads(result.stdout)["node"]["checks"]
    assert (check["status"], "PENDING BeginTime" in check["text"]) == ("failure", True), check
    assert "harness-doctor" not in slurm.ask("squeue", "-h", "-o", "%j %V %T", "-t", "PENDING")


# The command


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--method", "specot"), "'speccot'"),
        (("--target", "qwq32"), "unknown model 'qwq32'; valid: "),
        (("--method", "speccot", "--threshold", "3"), "--threshold is no parameter of speccot"),
        (("--data-dir", "no/such"), "no/such"),
        (("--slurm", "gpu"), "expected KEY=VALUE"),
        (("--dry-run",), "--dry-run"),
    ],
)
def test_wrong_flags_get_one_line_and_exit_code_2(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    result = doctor(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_exit_code_and_table_say_whether_something_failed(tmp_path: Path) -> None:
    flags = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--cluster", "local")
    good = doctor(*flags, "--json", cwd=tmp_path)
    found = json.loads(good.stdout)["here"]["checks"]
    assert (good.returncode, [check for check in found if check["status"] == "failure"]) == (0, [])
    assert {"python", "engine", "dataset", "output", "file locking"} <= {check["subject"] for check in found}
    (tmp_path / "demo.jsonl").write_text("{}\n")
    bad = doctor(*flags, "--data-dir", ".", cwd=tmp_path)
    assert bad.returncode == 1
    assert "FAILURE" in bad.stdout
    assert "1 failures" in bad.stdout
    assert not (tmp_path / "runs").exists()


def test_help_needs_no_heavy_package() -> None:
    code = (
        "import sys; from harness.doctor import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        "heavy = {'torch', 'vllm', 'transformers', 'datasets', 'sympy', 'duckdb', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "--on-node" in done.stdout
    assert "--dataset" in done.stdout
