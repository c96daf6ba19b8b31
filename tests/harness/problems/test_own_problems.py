"""Problems of one's own: what flags, a TOML file and a file may say, the line that each wrong one gets, and the hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from grading.bounds import MAX_ANSWER_CHARACTERS
from harness.problems import columns as columns_of
from harness.problems import sources
from harness.problems.benchmarks import BadDataset
from harness.problems.hub import HubSource
from harness.problems.problem import Problem, dataset_hash
from harness.problems.sources import describe, is_own
from harness.settings.launch_settings import Launch
from tests.harness.problems.local_hub import LocalHub, local_hub

GOOD = '{"problem": "What is 2 + 3?", "answer": 5}\n'


def problems(path: Path, text: str | bytes, columns: tuple[str, ...] = (), seed: int = 0) -> list[Problem]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return sources.load(str(path), seed=seed, columns=columns).problems


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


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "a.jsonl": (GOOD + '{"problem": \n', "line 2: Expecting value"),
    "b.jsonl": (GOOD + '{"problem": "What  is 2 + 3?", "answer": 6}', "line 2: the same problem as line 1"),
    "c.jsonl": ('{"id":"a","problem":"1","answer":5}\n\n{"id":"a","problem":"2","answer":5}', "line 3: the same id as"),
    "d.jsonl": (GOOD + '{"problem": " ", "answer": 5}', "line 2: problem: is empty"),
    "e.jsonl": (GOOD + '{"problem": "x", "answer": " "}', "line 2: the answer is empty"),
    "f.jsonl": (GOOD + '{"problem": "a\\u0000b", "answer": 5}', "line 2: problem: has a NUL character"),
    "g.jsonl": (GOOD + '{"problem": "a\0b", "answer": 5}', "line 2: Invalid control character"),
    "h.jsonl": (GOOD.encode() + b'{"problem": "caf\xe9", "answer": 5}', "line 2: 'utf-8' codec can't decode byte 0xe9"),
    "j.jsonl": (
        GOOD + json.dumps({"problem": "x" * 1_000_001, "answer": 1}),
        "line 2: problem: String should have at most 1000000",
    ),
    "k.jsonl": (
        GOOD + '{"question": "x", "answer": 5}',
        "line 2: no field 'problem'; it has question, answer; map it: --columns problem=COLUMN",
    ),
    "l.jsonl": (GOOD + '{"problem": 3, "answer": 5}', "line 2: problem: Input should be a valid string"),
    "m.jsonl": (GOOD + '{"problem": "x", "answer": [5]}', "line 2: answer: Input should be a valid string"),
    "n.jsonl": (GOOD + '{"problem": "x", "answer": true}', "line 2: answer: Input should be a valid string"),
    "o.jsonl": (GOOD + '{"problem": "x", "answer": 1e999}', "line 2: answer: Input should be a valid string"),
    "p.jsonl": (GOOD + '{"problem": "x", "answer": NaN}', "line 2: answer: Input should be a valid string"),
    "q.jsonl": ("\n \n", "no problems"),
    "r.jsonl": ("[1]", "line 1: not a JSON object"),
    "s.jsonl": (GOOD + "[" * 100_000, "line 2: JSON nested too deeply"),
    "u.jsonl": (
        '{"problem": "a\\ud800", "answer": 1}',
        "line 1: problem: Input should be a valid string",
    ),
    "v.jsonl": (GOOD + '{"problem": "x", "answer": "' + "9" * 2001 + '"}', "line 2: the answer has 2,001 characters"),
    "w.jsonl": ('{"problem": "x", "answer": 1, "id": "a\\nb"}', "line 1: id: holds a control character"),
    "x.jsonl": (
        '{"problem": "x", "answer": 1, "tolerance": -1}',
        "line 1: tolerance: Input should be greater than or equal to 0",
    ),
    "a.csv": ("problem,answer\na,1\nb,2,3\n", "line 3: the row has not 2 cells"),
    "b.csv": ('problem,answer\nb,1\n"a,1\n', "line 3: unexpected end of data"),
    "c.csv": ("problem,problem\na,1\n", "line 1: the first line names the columns"),
    "d.csv": ('problem,answer\n"two\nlines",1\na,\n', "line 4: the answer is empty"),
    "e.csv": ("problem,answer,choices\na,A,[1\n", "line 2: choices: is not a list in JSON"),
    "a.parquet": ("PAR1 nothing", "not a readable Parquet file"),
    "y.jsonl": (
        '{"problem": "a", "choices": ["x", "y"], "answer": "z"}',
        "line 1: the answer 'z' is no option: give",
    ),
    "z.jsonl": ('{"problem": "a", "choices": ["x", "x"], "answer": "x"}', "there must be 2 to 10, all different"),
    "1.jsonl": ('{"problem": "a", "choices": ["x"], "answer": "x"}', "line 1: 1 choices; there must be 2 to 10"),
    "2.jsonl": ('{"problem": "a", "choices": ["x", "y"], "answer": 1}', "may be index-from-0 or index-from-1"),
    "3.jsonl": ('{"problem": "a", "choices": ["B", "A"], "answer": "A"}', "the answer 'A' could be several options"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_file_is_one_line_with_its_place(name: str, tmp_path: Path) -> None:
    text, message = BROKEN[name]
    with pytest.raises(BadDataset) as error:
        problems(tmp_path / name, text)
    assert message in str(error.value)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"problem": ["a", "b"], "answer": [1, None]}), tmp_path / "my.parquet")
    with pytest.raises(BadDataset, match=r"row 1: answer: Input should be a valid string"):
        sources.load(str(tmp_path / "my.parquet"))


def test_columns_are_mapped(tmp_path: Path) -> None:
    text = "question,final,a,b\nWhich is even?,4,3,4\n"
    columns = ("problem=question,answer=final", "choices=a+b")
    [only] = problems(tmp_path / "my.csv", text, columns)
    assert (only.text, only.kind, only.choices, only.answer) == ("Which is even?", "choice", ("3", "4"), "B")


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
        ("integer", "027", "27"),
        ("integer", "$1,000$", "1000"),
        ("boxed", r"So \boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("hashes", "6 * 7 = 42\n#### 1,042", "1042"),
    ],
)
def test_the_answer_is_found_by_the_rule(rule: str, given: object, answer: str, tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text(json.dumps({"problem": "x", "answer": given}))
    (tmp_path / "my.toml").write_text(f'file = "my.jsonl"\nanswer_rule = "{rule}"')
    [only] = sources.load(str(tmp_path / "my.toml")).problems
    assert only.answer == answer


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        ("integer", "1/2", "could not convert string to float: '1/2'"),
        ("boxed", "42", r"no \boxed"),
        ("hashes", "42 ####", "no answer behind ####"),
        ("index-from-0", 1, "the row has no choices"),
    ],
)
def test_an_answer_that_the_rule_does_not_fit_is_named(rule: str, given: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text(json.dumps({"problem": "x", "answer": given}))
    (tmp_path / "my.toml").write_text(f'file = "my.jsonl"\nanswer_rule = "{rule}"')
    with pytest.raises(BadDataset) as error:
        sources.load(str(tmp_path / "my.toml"))
    assert message in str(error.value)


def test_an_index_may_count_from_0_or_1(tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text('{"problem": "x", "choices": ["1", "2"], "answer": 1}')
    for start, letter in ((0, "B"), (1, "A")):
        (tmp_path / "my.toml").write_text(f'file = "my.jsonl"\nanswer_rule = "index-from-{start}"')
        assert sources.load(str(tmp_path / "my.toml")).problems[0].answer == letter


def test_the_longest_answer_is_what_the_grader_reads() -> None:
    assert columns_of.MAX_ANSWER_CHARACTERS == MAX_ANSWER_CHARACTERS


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
    with pytest.raises(ValueError, match=r"my\.jsonl: 1 problems, told should have 2"):
        sources.load("../told.toml")


WRONG = [
    ({"dataset": "my"}, "--dataset my: unknown; valid: gsm8k, "),
    ({"dataset": "my.txt"}, "a file (.jsonl, .csv, .parquet, .toml) or hf:ORG/NAME"),
    ({"dataset": "org/set"}, "--dataset org/set: unknown; valid: a file"),
    ({"dataset": "no.jsonl"}, "no.jsonl: no such file"),
    ({"dataset": "."}, "--dataset .: unknown"),
    ({"dataset": "hf:set"}, "--dataset hf:set: expected ORG/NAME[:CONFIG][@REVISION]"),
    ({"dataset": "amc23.jsonl"}, "'amc23' is the name of a known dataset"),
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
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Launch.from_flags({**FLAGS, **flags})
    assert "\n" not in str(error.value)


WRONG_FILES = [
    ('file = "my.jsonl"\nkind = "maths"', "kind: Input should be 'math' or 'choice'"),
    ('fil = "my.jsonl"', "unknown key 'fil'; valid: file, hub, split, name"),
    ('title = "x"', "say where the problems are"),
    ('file = "my.jsonl"\nhub = "org/set"', "one of them"),
    ('file = "no.jsonl"', "no.jsonl: no such file"),
    ('file = "my.jsonl"\ncount = true', "count: Input should be a valid integer"),
    ('file = "my.jsonl"\nsplit = "test"', "one file and has no splits"),
    ('file = "my.jsonl"\nanswer_rule = "last"', "answer_rule: Input should be 'text', 'integer', 'boxed'"),
    ('file = "my.jsonl"\nname = "a/b"', "'a/b' cannot name a run's dataset"),
    ('file = "my.jsonl"\nname = "demo"', "'demo' is the name of a known dataset"),
    ('file = "my.jsonl"\n[columns]\nproblm = "x"', "unknown field 'problm'"),
    ('file = "my.jsonl"\n[columns]\nproblem = ["a", "b"]', "problem is one column; only choices may be several"),
    ('hub = "set"', "hf:set: expected ORG/NAME"),
    ("=", "not a readable TOML file"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_FILES)
def test_a_wrong_toml_file_is_one_line(text: str, message: str, folder: Path) -> None:
    (folder / "told.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Launch.from_flags({**FLAGS, "dataset": str(folder / "told.toml")})
    assert "\n" not in str(error.value)


def test_columns_may_be_a_table_of_a_configuration_file(folder: Path) -> None:
    (folder / "two.csv").write_text("q,f,a,b\nx,1,2,3\n")
    columns = {"problem": "q", "answer": "f", "choices": ["a", "b"]}
    launch = Launch.from_flags({**FLAGS, "dataset": str(folder / "two.csv"), "columns": columns})
    assert launch.columns == ("problem=q", "answer=f", "choices=a+b")


OLD, NEW = "a" * 40, "b" * 40
ROWS = [{"question": f"What is {i} + 1?", "final": i + 1} for i in range(3)]
PROGRAM = """
import json, sys
from harness.problems import sources
for dataset, split in json.loads(sys.argv[1]):
    try:
        read = sources.load(dataset, split=split, columns=("problem=question", "answer=final"))
        answers = [problem.answer for problem in read.problems]
        print(json.dumps({"source": read.source, "answers": answers, "name": read.name, "notices": read.notices}))
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "line": str(error)}))
"""


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as served:
        served.add("org/sums", OLD, {"test.jsonl": lines(ROWS), "README.md": b"# Sums\n"})
        yield served


def loaded(address: str, home: Path, *wanted: tuple[str, str | None]) -> list[dict[str, Any]]:
    """Load datasets in a process of its own, because the hub's libraries read its address when they are imported."""
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    own |= {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    words = [sys.executable, "-c", PROGRAM, json.dumps(wanted)]
    ended = subprocess.run(words, env=own, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_revision_is_the_commit_that_it_names_also_from_the_cache(hub: LocalHub, tmp_path: Path) -> None:
    [first] = loaded(hub.address, tmp_path, ("hf:org/sums", None))
    assert first == {"source": f"hub org/sums@{OLD}, test", "answers": ["1", "2", "3"], "name": "sums", "notices": []}

    [offline] = loaded("http://127.0.0.1:9", tmp_path, ("hf:org/sums", None))
    assert (offline["source"], offline["answers"]) == (first["source"], first["answers"])
    assert offline["notices"] == [f"THE HUB CANNOT BE REACHED: org/sums is the newest commit in its cache, {OLD}."]

    reference = tmp_path / "hub" / "datasets--org--sums" / "refs" / "v1"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(OLD)
    [cached] = loaded("http://127.0.0.1:9", tmp_path, ("hf:org/sums@v1", None))
    assert (cached["source"], cached["notices"]) == (first["source"], [])

    hub.add("org/sums", NEW, {"test.jsonl": lines(ROWS[:2])})
    moved, pinned, tagged, split, config, missing = loaded(
        hub.address,
        tmp_path,
        ("hf:org/sums", None),
        (f"hf:org/sums@{OLD}", None),
        ("hf:org/sums@v9", None),
        ("hf:org/sums", "train"),
        ("hf:org/sums:hard", None),
        ("hf:org/none", None),
    )
    assert (moved["source"], len(moved["answers"])) == (f"hub org/sums@{NEW}, test", 2)
    assert (pinned["source"], len(pinned["answers"])) == (f"hub org/sums@{OLD}, test", 3)
    for refused, words in (
        (tagged, "hub org/sums@v9: RevisionNotFoundError"),
        (split, 'Unknown split "train". Should be one of'),
        (config, "BuilderConfig 'hard' not found"),
        (missing, "hub org/none@main: RepositoryNotFoundError"),
    ):
        assert refused["error"] == "DatasetNotFound"
        assert words in refused["line"]
        assert "\n" not in refused["line"]

    named, newest, other = loaded(
        "http://127.0.0.1:9",
        tmp_path,
        ("hf:org/sums@v9", None),
        ("hf:org/sums", None),
        (f"hf:org/sums@{'c' * 40}", None),
    )
    assert "the newest commit in its cache is" in named["line"]
    assert named["line"].endswith("not v9")
    assert newest["source"] in (f"hub org/sums@{OLD}, test", f"hub org/sums@{NEW}, test")
    assert len(newest["answers"]) == (3 if OLD in newest["source"] else 2)
    assert f"not {'c' * 40}" in other["line"]
