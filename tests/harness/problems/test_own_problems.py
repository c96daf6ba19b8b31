"""Problems of one's own: what flags, a TOML file and a file may say, the line that each wrong one gets, and the hub."""

from __future__ import annotations

import json
import re
import types
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from grading.bounds import MAX_ANSWER_CHARACTERS
from harness.problems import hub, sources
from harness.problems.benchmarks import BadDataset, DatasetNotFound
from harness.problems.columns import letter
from harness.problems.hub import HubSource
from harness.problems.problem import Problem, dataset_hash
from harness.problems.sources import describe
from harness.settings.launch_settings import Launch
from tests.harness.problems.stand_ins import Table, put_datasets

GOOD = '{"problem": "What is 2 + 3?", "answer": 5}\n'


def problems(path: Path, text: str | bytes, columns: tuple[str, ...] = ()) -> list[Problem]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sources.load(str(path), columns=columns).problems


def test_a_line_becomes_a_problem_with_all_that_it_says(tmp_path: Path) -> None:
    row = {"problem": "1\u20282", "answer": 7, "id": "q-1", "answers": ["3", 4], "level": 2, "subject": "sums",
           "family": "t3", "unit": "cm", "tolerance": 0.5, "note": "not read"}  # fmt: skip
    [only] = problems(tmp_path / "my.jsonl", json.dumps(row, ensure_ascii=False))
    assert only == Problem("q-1", "my", "1\u20282", "7", "math", ("3", "4"), level="2", subject="sums", family="t3",
                           unit="cm", tolerance=0.5)  # fmt: skip
    assert only.content_hash == replace(only, id="q-2", level=None, subject=None, family=None).content_hash


def test_the_same_problems_in_other_files_and_formats_have_equal_ids_and_contents(tmp_path: Path) -> None:
    rows = [{"problem": "What is 2 + 3?", "answer": "5"}, {"problem": "Two\nlines, a comma", "answer": "1/2"}]
    lines = "\n".join(map(json.dumps, rows))
    table = 'answer,problem\n5,What is 2 + 3?\n1/2,"Two\nlines, a comma"\n'
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    (tmp_path / "sub").mkdir()
    read = [
        problems(tmp_path / "a.jsonl", lines),
        problems(tmp_path / "sub" / "b.jsonl", "\ufeff" + lines.replace("\n", "\r\n\n")),
        problems(tmp_path / "b.csv", table),
        sources.load(str(tmp_path / "c.parquet")).problems,
    ]
    assert [[p.id for p in each] for each in read] == [["row/0", "row/1"]] * 4
    assert len({dataset_hash(each) for each in read}) == 1
    assert [each[0].dataset for each in read] == ["a", "b", "b", "c"]


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        ("jsonl", GOOD + '{"problem": \n', "line 2:"),
        ("jsonl", GOOD + '{"problem": "What  is 2 + 3?", "answer": 6}', "line 2: the same problem as line 1"),
        ("jsonl", '{"id":"a","problem":"1","answer":5}\n\n{"id":"a","problem":"2","answer":5}', "line 3: the same id"),
        ("jsonl", GOOD + '{"problem": " ", "answer": 5}', "line 2: problem:"),
        ("jsonl", GOOD + '{"problem": "x", "answer": " "}', "line 2: the answer is empty"),
        ("jsonl", GOOD + '{"problem": "a\\u0000b", "answer": 5}', "line 2: problem:"),
        ("jsonl", GOOD.encode() + b'{"problem": "caf\xe9", "answer": 5}', "line 2: 'utf-8'"),
        ("jsonl", GOOD + json.dumps({"problem": "x" * 1_000_001, "answer": 1}), "line 2: problem:"),
        ("jsonl", GOOD + '{"question": "x", "answer": 5}', "--columns problem=COLUMN"),
        ("jsonl", GOOD + '{"problem": "x", "answer": true}', "line 2: answer:"),
        ("jsonl", GOOD + '{"problem": "x", "answer": NaN}', "line 2: answer:"),
        ("jsonl", "\n \n", "no problems"),
        ("jsonl", GOOD + "[" * 100_000, "line 2:"),
        ("jsonl", '{"problem": "a\\ud800", "answer": 1}', "line 1: problem:"),
        ("jsonl", GOOD + '{"problem": "x", "answer": "' + "9" * (MAX_ANSWER_CHARACTERS + 1) + '"}', "2,001"),
        ("jsonl", '{"problem": "x", "answer": 1, "id": "a\\nb"}', "line 1: id:"),
        ("jsonl", '{"problem": "x", "answer": 1, "tolerance": -1}', "line 1: tolerance:"),
        ("jsonl", '{"problem": "a", "choices": ["x", "y"], "answer": "z"}', "line 1: the answer 'z'"),
        ("jsonl", '{"problem": "a", "choices": ["x", "x"], "answer": "x"}', "line 1:"),
        ("jsonl", '{"problem": "a", "choices": ["x", "y"], "answer": 1}', "index-from-0 or index-from-1"),
        ("csv", "problem,answer\na,1\nb,2,3\n", "line 3:"),
        ("csv", 'problem,answer\nb,1\n"a,1\n', "line 3:"),
        ("csv", "problem,problem\na,1\n", "line 1:"),
        ("csv", 'problem,answer\n"two\nlines",1\na,\n', "line 4: the answer is empty"),
        ("parquet", "PAR1 nothing", "Parquet"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(ending: str, text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadDataset) as error:
        problems(tmp_path / f"my.{ending}", text)
    assert message in str(error.value)
    assert str(tmp_path / f"my.{ending}") in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_are_mapped(tmp_path: Path) -> None:
    text = "question,final,a,b,c\nEven?,4,3,4,\nOdd?,3,2,3,4\n2 + 2?,4,,,\n"
    columns = ("problem=question,answer=final", "choices=a+b+c")
    two, three, none = problems(tmp_path / "my.csv", text, columns)
    assert (two.text, two.kind, two.choices, two.answer) == ("Even?", "choice", ("3", "4"), "B")
    assert (three.choices, three.answer) == (("2", "3", "4"), "B")
    assert (none.kind, none.choices, none.answer) == ("math", (), "4")


def test_options_stay_in_their_order_unless_they_are_to_be_shuffled(tmp_path: Path) -> None:
    rows = [{"problem": f"{i}?", "choices": ["w", "x", "y", "z"], "answer": "A"} for i in range(12)]
    (tmp_path / "my.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plain = sources.load(str(tmp_path / "my.jsonl"))
    assert {problem.answer for problem in plain.problems} == {"A"}
    (tmp_path / "my.toml").write_text('file = "my.jsonl"\nshuffle = true\n')
    first, second = (sources.load(str(tmp_path / "my.toml"), seed=seed) for seed in (0, 1))
    assert {problem.choices["ABCD".index(problem.answer)] for problem in first.problems} == {"w"}
    assert len({problem.answer for problem in first.problems}) > 1
    assert first.problems != second.problems


@pytest.mark.parametrize(
    ("rule", "given", "answer"),
    [
        ("text", 0.5, "0.5"),
        ("integer", "$1,000$", "1000"),
        ("boxed", r"So \boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("hashes", "6 * 7 = 42\n#### 1,042", "1042"),
        ("index-from-1", 1, "A"),
    ],
)
def test_the_answer_is_found_by_the_rule(rule: str, given: object, answer: str, tmp_path: Path) -> None:
    row = {"problem": "x", "answer": given} | ({"choices": ["1", "2"]} if rule.startswith("index") else {})
    (tmp_path / "my.jsonl").write_text(json.dumps(row))
    (tmp_path / "my.toml").write_text(f'file = "my.jsonl"\nanswer_rule = "{rule}"')
    [only] = sources.load(str(tmp_path / "my.toml")).problems
    assert only.answer == answer


def test_an_index_out_of_range_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="'3' is not an option: use an index from 1 to 2"):
        letter("index-from-1", "3", ["x", "y"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("my.jsonl", "amc23.jsonl"):
        (tmp_path / name).write_text('{"problem": "What is 2 + 3?", "answer": 5}')
    return tmp_path


def test_a_dataset_of_the_hub_is_named_with_its_parts() -> None:
    own = describe("hf:org/a.b:The Config@refs/pr/1", "train")
    assert own.source == HubSource("org/a.b", "The Config", "refs/pr/1", "train")
    assert own.name == "a.b-The-Config-train"
    assert describe("hf:org/set").source == HubSource("org/set")


def test_a_toml_file_says_it_once_and_flags_override_it(folder: Path) -> None:
    (folder / "told.toml").write_text(
        'hub = "org/set:main"\nsplit = "dev"\nname = "told"\ntitle = "T"\nkind = "choice"\ncount = 7\n'
        '[columns]\nproblem = "q"\nchoices = ["a", "b"]\n'
    )
    own = describe(str(folder / "told.toml"), columns=("problem=question",))
    assert (own.name, own.title, own.kind, own.count) == ("told", "T", "choice", 7)
    assert own.source == HubSource("org/set", "main", None, "dev")
    assert own.columns == {"problem": "question", "choices": ["a", "b"]}
    assert describe(str(folder / "told.toml"), "test").source == HubSource("org/set", "main", None, "test")


def test_the_file_of_a_toml_file_is_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    (folder / "told.toml").write_text('file = "my.jsonl"\ncount = 1')
    assert [problem.dataset for problem in sources.load("../told.toml").problems] == ["told"]
    (folder / "told.toml").write_text('file = "my.jsonl"\ncount = 2')
    with pytest.raises(ValueError, match=r"my\.jsonl: 1 problems, expected 2 for told"):
        sources.load("../told.toml")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dataset": "my"}, "--dataset my: unknown; valid: gsm8k, "),
        ({"dataset": "my.txt"}, "(.jsonl, .csv, .parquet, .toml)"),
        ({"dataset": "no.jsonl"}, "no.jsonl"),
        ({"dataset": "hf:set"}, "ORG/NAME[:CONFIG][@REVISION]"),
        ({"dataset": "amc23.jsonl"}, "'amc23'"),
        ({"dataset": "my.jsonl", "split": "test"}, "my.jsonl"),
        ({"dataset": "demo", "split": "test"}, "--split"),
        ({"dataset": "my.jsonl", "columns": "problem"}, "FIELD=COLUMN,FIELD=COLUMN"),
        ({"dataset": "my.jsonl", "columns": "question=problem"}, "'question'; valid: problem, answer, id"),
        ({"dataset": "my.jsonl", "columns": "problem=a,problem=b"}, "problem"),
        ('file = "my.jsonl"\nkind = "maths"', "'math' or 'choice'"),
        ('fil = "my.jsonl"', "'fil'; valid: file, hub, split, name"),
        ('file = "my.jsonl"\nhub = "org/set"', "told.toml"),
        ('file = "my.jsonl"\ncount = true', "count:"),
        ('file = "my.jsonl"\nsplit = "test"', "split"),
        ('file = "my.jsonl"\nname = "a/b"', "'a/b'"),
        ('file = "my.jsonl"\n[columns]\nproblm = "x"', "'problm'"),
        ("=", "TOML"),
    ],
)
def test_wrong_flags_and_a_wrong_toml_file_are_one_line(
    asked: dict[str, str] | str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asked`: flags, or the text of a TOML file."""
    monkeypatch.chdir(folder)
    if isinstance(asked, str):
        (folder / "told.toml").write_text(asked)
        asked = {"dataset": "told.toml"}
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Launch.from_flags({"method": "vanilla", "engine": "scripted", **asked})
    assert "\n" not in str(error.value)


OLD, NEW = "a" * 40, "b" * 40
NUM_ROWS = {OLD: 3, NEW: 2}


@pytest.mark.parametrize(
    ("revision", "reaches", "commit"),
    [
        (None, True, NEW),
        (OLD, True, OLD),
        ("v1", True, OLD),
        ("v9", True, None),
        (None, False, NEW),
        ("v1", False, OLD),  # as the cache's own reference says
        ("v9", False, None),
        ("c" * 40, False, None),
    ],
)
def test_a_revision_is_the_commit_that_it_names_also_from_the_cache(
    revision: str | None, reaches: bool, commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub import constants

    def load_dataset(hub_id: str, config: str | None, *, split: str, revision: str | None) -> Table:
        """As the library does: offline, it reads the newest commit in place of one that its cache does not have."""
        found = str(revision) if reaches or revision == OLD else NEW
        return Table("org___sums", found, ({"problem": f"{i} + 1?", "answer": i + 1} for i in range(NUM_ROWS[found])))

    def dataset_info(hub: object, hub_id: str, *, revision: str, timeout: float) -> types.SimpleNamespace:
        if revision not in (named := {"main": NEW, "v1": OLD}):
            raise ValueError("404")
        return types.SimpleNamespace(sha=named[revision])

    put_datasets(monkeypatch, load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "is_reachable", lambda: reaches)
    reference = tmp_path / "datasets--org--sums" / "refs" / "v1"
    reference.parent.mkdir(parents=True)
    reference.write_text(OLD)

    dataset = "hf:org/sums" + (f"@{revision}" if revision else "")
    if commit is None:
        with pytest.raises(DatasetNotFound, match=str(revision)) as refused:
            sources.load(dataset)
        assert "\n" not in str(refused.value)
    else:
        read = sources.load(dataset)
        assert f"org/sums@{commit}" in read.source
        assert (len(read.problems), len(read.notices)) == (NUM_ROWS[commit], int(revision is None and not reaches))
    assert not constants.HF_HUB_OFFLINE, "the library's own switch is turned back"
