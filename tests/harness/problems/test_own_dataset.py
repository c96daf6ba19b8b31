"""What `--dataset`, `--split`, `--columns` and a TOML file say of an own dataset, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.launch_options import BadLaunch, Launch
from harness.problems import sources
from harness.problems.own_problems import HubSource, describe, is_own

FLAGS = {"method": "vanilla", "engine": "scripted"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("my.jsonl", "amc23.jsonl", "a name.jsonl"):
        (tmp_path / name).write_text('{"problem": "What is 2 + 3?", "answer": 5}')
    return tmp_path


def test_known_names_stay_what_they_were() -> None:
    assert not is_own("demo")
    demo = sources.load("demo")
    assert (demo.name, demo.source, demo.origin, len(demo.problems)) == ("demo", "bundled", None, 40)


@pytest.mark.parametrize(
    ("text", "split", "source", "name"),
    [
        ("hf:org/set", None, HubSource("org/set"), "set"),
        ("hf:org/set@v2", "train", HubSource("org/set", None, "v2", "train"), "set-train"),
        ("hf:org/a.b:The Config@refs/pr/1", None, HubSource("org/a.b", "The Config", "refs/pr/1"), "a.b-The-Config"),
    ],
)
def test_a_dataset_of_the_hub_is_named_with_its_parts(
    text: str, split: str | None, source: HubSource, name: str
) -> None:
    own = describe(text, split)
    assert (own.source, own.name) == (source, name)


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
    with pytest.raises(ValueError, match=r"my\.jsonl: 1 problems, but count = 2"):
        sources.load("../told.toml")


WRONG = [
    ({"dataset": "my"}, "--dataset my: unknown; valid: gsm8k, "),
    ({"dataset": "my.txt"}, "a file (.jsonl, .csv, .parquet, .toml) or hf:ORG/NAME"),
    ({"dataset": "org/set"}, "--dataset org/set: unknown; valid: a file"),
    ({"dataset": "no.jsonl"}, "no.jsonl: no such file"),
    ({"dataset": "."}, "--dataset .: unknown"),
    ({"dataset": "hf:set"}, "--dataset hf:set: expected ORG/NAME[:CONFIG][@REVISION]"),
    ({"dataset": "amc23.jsonl"}, "amc23 is the name of a known dataset: rename the file"),
    ({"dataset": "a name.jsonl"}, "'a name' cannot name a run's dataset"),
    ({"dataset": "my.jsonl", "split": "test"}, "my.jsonl is one file and has no splits"),
    ({"dataset": "demo", "split": "test"}, "--split: demo has its own"),
    ({"dataset": "demo", "columns": "problem=x"}, "--columns: demo has its own"),
    ({"dataset": "my.jsonl", "columns": "problem"}, "expected FIELD=COLUMN,FIELD=COLUMN"),
    ({"dataset": "my.jsonl", "columns": "question=problem"}, "unknown field 'question'; valid: problem, answer, id"),
    ({"dataset": "my.jsonl", "columns": "problem=a,problem=b"}, "problem is given twice"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG)
def test_wrong_flags_are_one_line(
    flags: dict[str, str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(BadLaunch) as error:
        Launch.from_flags({**FLAGS, **flags})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


WRONG_FILES = [
    ('file = "my.jsonl"\nkind = "maths"', "kind: Input should be 'math' or 'choice'"),
    ('fil = "my.jsonl"', "unknown key 'fil'; valid: file, hub, split, name"),
    ('title = "x"', "say where the problems are"),
    ('file = "my.jsonl"\nhub = "org/set"', "one of them"),
    ('file = "no.jsonl"', "no.jsonl: no such file"),
    ('file = "my.jsonl"\ncount = true', "count: Input should be a valid integer"),
    ('file = "my.jsonl"\nsplit = "test"', "a file has no splits"),
    ('file = "my.jsonl"\nanswer_rule = "last"', "answer_rule 'last': unknown; valid: text, integer, boxed"),
    ('file = "my.jsonl"\nkind = "math"\nshuffle = true', "shuffle: for choices, not for kind math"),
    ('file = "my.jsonl"\nname = "a/b"', "'a/b' cannot name a run's dataset"),
    ('file = "my.jsonl"\nname = "demo"', "demo is the name of a known dataset"),
    ('file = "my.jsonl"\n[columns]\nproblm = "x"', "unknown field 'problm'"),
    ('file = "my.jsonl"\n[columns]\nproblem = ["a", "b"]', "problem is one column; only choices may be several"),
    ('hub = "set"', "hub = set: expected ORG/NAME"),
    ("=", "not a readable TOML file"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_FILES)
def test_a_wrong_toml_file_is_one_line(text: str, message: str, folder: Path) -> None:
    (folder / "told.toml").write_text(text)
    with pytest.raises(BadLaunch) as error:
        Launch.from_flags({**FLAGS, "dataset": str(folder / "told.toml")})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_may_be_a_table_of_a_configuration_file(folder: Path) -> None:
    (folder / "two.csv").write_text("q,f,a,b\nx,1,2,3\n")
    columns = {"problem": "q", "answer": "f", "choices": ["a", "b"]}
    launch = Launch.from_flags({**FLAGS, "dataset": str(folder / "two.csv"), "columns": columns})
    assert launch.columns == ("problem=q", "answer=f", "choices=a+b")
