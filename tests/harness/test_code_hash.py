"""The hash of the code changes with what decides results, and with nothing else."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from harness import code_hash
from harness.code_hash import Code, changed_files, is_hashed, read, running_code, without_comments
from tests.import_graph import import_graph, module_files

ROOT = Path(__file__).resolve().parents[2]
DECIDES_NOTHING = {
    "jobs.run.codes": "which code may work, and runs",
    "jobs.run.engine_installed": "refuses a worker that lacks an engine",
    "jobs.run.files": "how files are written, and that damage is refused",
    "jobs.run.folder": "where files lie; reads and writes plans",
    "jobs.run.locks": "keeps two workers off one shard",
    "jobs.run.served": "where servers listen; the specification says what they run",
    "jobs.run.sizing": "calls harness.sizing",
    "jobs.run.submissions": "what was submitted",
    "jobs.run.target_logprobs": "files beside the traces, which say what scored them and how",
    "jobs.slurm.client": "asks Slurm",
    "jobs.slurm.python_command": "how jobs are started",
    "jobs.submission.own_python": "how jobs are started",
    "jobs.submission.snapshot": "which code runs",
    "jobs.submission.task": "which code runs",
    **dict.fromkeys(
        ("jobs.timing.draw", "jobs.timing.folder", "jobs.timing.phase"),
        "which samples are run again to be timed; they are run by the code that is hashed",
    ),
    "jobs.work.attempt": "records what there is",
}
"""Modules of jobs that a worker or the grading imports, that are not part of the hash, and why.

Of `harness` and `grading` all is hashed that code_hash does not name.
"""


def test_whatever_a_worker_or_the_grader_imports_is_hashed_or_decides_nothing() -> None:
    files = module_files(ROOT, ("harness", "jobs", "grading", "warehouse"))
    graph = import_graph(files)
    reached: set[str] = set()
    ahead = ["jobs.work.worker", "jobs.work.side_by_side", "jobs.after.grading"]
    while ahead:
        module = ahead.pop()
        if module not in reached:
            reached.add(module)
            ahead += graph[module]
    names = {module: files[module].relative_to(ROOT).as_posix() for module in reached}
    left_out = {module for module, name in names.items() if module.startswith("jobs.") and not is_hashed(name)}
    assert left_out == DECIDES_NOTHING.keys()
    assert all((ROOT / name).exists() for name in (*code_hash._HASHED, *code_hash._LEFT_OUT))


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "harness/methods/README.md",
        "harness/papers/presets.toml",
        "harness/problems/benchmarks.py",
        "harness/methods/__pycache__/vanilla.cpython-311.pyc",
        "harness/.hidden/code.py",
        "jobs/submission/submit.py",
        "jobs/watch/status.py",
        "slurm/clusters/example.toml",
        "tests/jobs/runs.py",
        "warehouse/summary.py",
    ],
)
def test_what_decides_no_result_is_not_hashed(name: str) -> None:
    assert not is_hashed(name)


@pytest.mark.parametrize(
    "name",
    ["harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py", "jobs/work/shard_run.py",
     "harness/methods/a_new_one.py", "harness/sizing/models.toml"],
)  # fmt: skip
def test_what_decides_results_is_hashed(name: str) -> None:
    assert is_hashed(name)


def test_every_hashed_file_of_this_code_has_a_digest_of_its_own() -> None:
    code = running_code()
    assert code == read(ROOT)
    assert "harness/data/prompts.toml" in code.digests
    not_empty = [path for path in code.digests if not path.endswith("__init__.py")]
    assert len({code.digests[path] for path in not_empty}) == len(not_empty)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_comments_docstrings_and_blank_lines_do_not_count(copy: Path) -> None:
    before = read(copy)
    speccot, prompts = copy / "harness/methods/speccot.py", copy / "harness/data/prompts.toml"
    source = speccot.read_text()
    speccot.write_text(
        '"""Another docstring,\n\nof two paragraphs."""\n\n# A comment.\n\n\n' + source.partition('"""\n')[2]
    )
    prompts.write_text("# A comment.\n\n" + prompts.read_text())
    (copy / "harness/methods/README.md").write_text("Another text.")
    (copy / "tests").mkdir()
    (copy / "tests/test_methods.py").write_text("assert False")
    assert read(copy) == before


@pytest.mark.parametrize("name", ["harness/methods/speccot.py", "harness/data/prompts.toml", "grading/grade.py"])
def test_an_edit_of_what_decides_results_is_another_hash(copy: Path, name: str) -> None:
    before = read(copy)
    path = copy / name
    path.write_text(path.read_text() + ("\nadded = 1\n" if name.endswith(".py") else "\n[added]\nvalue = 1\n"))
    after = read(copy)
    assert after.hash != before.hash
    assert changed_files(before.digests, after.digests) == name


def test_a_new_and_a_removed_file_are_another_hash(copy: Path) -> None:
    before = read(copy)
    (copy / "harness/methods/mine.py").touch()
    added = read(copy)
    (copy / "grading/grade.py").unlink()
    removed = read(copy)
    assert len({before.hash, added.hash, removed.hash}) == 3
    names = "grading/grade.py, harness/methods/mine.py"
    assert changed_files(before.digests, removed.digests) == names


def test_of_many_changed_files_three_are_named() -> None:
    assert changed_files({}, {f"{n}.py": "" for n in range(5)}) == "0.py, 1.py, 2.py and 2 more files"
    assert changed_files({}, {f"{n}.py": "" for n in range(4)}) == "0.py, 1.py, 2.py and 1 more file"
    assert Code({"a": "1"}).hash != Code({"a": "2"}).hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1  # one\n", "x = 1\n"),
        ('def f():\n    """Doc."""\n    return 1\n', "def f():\n    return 1\n"),
        ('x: int = 1\n"""Below a field."""\n', "x: int = 1\n\n\n"),
        ("class A:\n    r'''Doc # '''  # why\n    y = 2\n", "class A:\n    y = 2\n"),
    ],
)
def test_what_does_not_count(one: str, other: str) -> None:
    assert without_comments(one) == without_comments(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('x = "#a"\n', 'x = "#b"\n'),
        ('x = """a\n\nb"""\n', 'x = """a\nb"""\n'),
        ('x = """a \nb"""\n', 'x = """a\nb"""\n'),
        ('x = (\n    "a"\n    "b"\n)\n', 'x = (\n    "a"\n    "c"\n)\n'),
        ('x = "a" \\\n    "b"\n', 'x = "a" \\\n    "c"\n'),
        ("if x:\n    y = 1\n    z = 2\n", "if x:\n    y = 1\nz = 2\n"),
        ("x = f'{a}#1'\n", "x = f'{a}#2'\n"),
        ("x = '\\'' # '\n", "x = '\\'' + '# '\n"),
        ("f'{print(1)}'\n", "\n"),
    ],
)
def test_what_counts(one: str, other: str) -> None:
    assert without_comments(one) != without_comments(other)


def without_docstrings(source: str) -> str:
    """What Python's own parser keeps of a source that has no comments, without strings that are statements."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                setattr(node, name, [s for s in body if not _is_text(s)] or [ast.Pass()])
    return ast.dump(tree)


def _is_text(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def test_nothing_that_pythons_parser_sees_is_lost_of_the_projects_own_files() -> None:
    string = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
    for path in [path for path in running_code().digests if path.endswith(".py")]:
        source = (ROOT / path).read_text(encoding="utf-8")
        lines = without_comments(source).split("\n")
        for number, line in enumerate(lines):  # a body that was only a docstring
            following = lines[number + 1] if number + 1 < len(lines) else ""
            depth = len(line) - len(line.lstrip())
            if (
                re.fullmatch(r"\s*class .*:|.*\) -> .*:|\s*def .*:", line)
                and len(following) - len(following.lstrip()) <= depth
            ):
                lines[number] = f"{line}\n{' ' * (depth + 4)}pass"
        found = string.sub(lambda text: str(ast.literal_eval(text.group())), "\n".join(lines))
        assert without_docstrings(found) == without_docstrings(source), path


def test_a_file_that_is_no_python_counts_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "harness" / "methods" / "broken.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff# a")
    before = read(tmp_path)
    path.write_bytes(b"\xff# b")
    assert read(tmp_path).hash != before.hash
    assert code_hash.read(tmp_path / "nothing").digests == {}
