"""Benchmarks: every source becomes the same problems, and what is not complete or not well-formed is refused."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.problems import benchmarks, columns, hub
from harness.problems.benchmarks import (
    DATASETS,
    BadDataset,
    Benchmark,
    DatasetNotFound,
    from_hub_rows,
    load,
    load_recorded,
    read_file,
    select,
)
from harness.problems.problem import Problem
from tests.shared import SHARED, shared_rows

ROOT = Path(__file__).resolve().parents[3]
SHARED_NAMES = [
    name
    for name, of in DATASETS.items()
    if name not in {"aime25", "gpqa", "demo", "demo-train"} and not (of.part_of or of.spans)
]
PARTS = [name for name, of in DATASETS.items() if of.part_of]
RIGHT = "the right one"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
    return path


def gpqa_row(number: int) -> dict[str, Any]:
    return {
        "Question": f"Which one of {number}?\n",
        "Correct Answer": f"{RIGHT} \n",
        **{f"Incorrect Answer {i}": f"wrong {i}" for i in (1, 2, 3)},
        "High-level domain": "Physics",
    }


def revision_of(name: str) -> str | None:
    source = DATASETS[name].source
    return source.revision if isinstance(source, hub.HubSource) else None


def problem_of(name: str, row: dict[str, Any]) -> Problem:
    one = DATASETS[name].model_copy(update={"count": 1, "hub_count": None})
    [problem] = from_hub_rows(one, [row])
    return problem


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_DATA_DIR", raising=False)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_lists_as_many_different_problems_as_it_has(name: str) -> None:
    hashes = benchmarks.listed(name)
    assert len(set(hashes)) == len(hashes) == DATASETS[name].count
    assert all(re.fullmatch("[0-9a-f]{16}", key) for key in hashes)


def test_a_part_of_a_benchmark_is_found_by_the_texts_of_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the list, whatever the order and the blanks of the copy; ids stay those of the whole."""
    monkeypatch.setitem(DATASETS, "whole", Benchmark(name="whole", title="w", count=4))
    monkeypatch.setitem(DATASETS, "few", Benchmark(name="few", title="f", count=2, part_of="whole"))
    monkeypatch.setattr(benchmarks, "SELECTIONS", tmp_path)
    texts = ["one  thing", "two", "three", "four"]
    lines = "".join(f"{benchmarks.text_hash(text)}\n" for text in ("three", "one thing"))
    (tmp_path / "few.txt").write_text(f"# two of four\n{lines}")
    write(tmp_path / "whole.jsonl", [{"problem": text, "answer": "1"} for text in texts])
    loaded = load_recorded("few", tmp_path)
    assert [(p.id, p.dataset, p.text) for p in loaded.problems] == [
        ("whole/2", "few", "three"),
        ("whole/0", "few", "one  thing"),
    ]
    assert loaded.source == f"part of file {tmp_path / 'whole.jsonl'}"
    write(tmp_path / "whole.jsonl", [{"problem": f"{text}!", "answer": "1"} for text in texts])
    with pytest.raises(BadDataset, match="only 0 of the 2 problems of few are in this copy of whole, by their texts"):
        load("few", tmp_path)


def test_the_problems_of_scots_authors_are_in_the_benchmarks_that_they_are_of() -> None:
    """51 of their MATH problems are in MATH-500; of OlympiadBench they took the first 500."""
    shared_rows("math")
    theirs = {benchmarks.text_hash(p.text) for p in load("math-scot", SHARED)}
    assert len(theirs) == 500
    assert len(theirs & {benchmarks.text_hash(p.text) for p in load("math500", SHARED)}) == 51
    assert [p.id for p in load("olympiadbench-scot", SHARED)] == [f"olympiadbench/{i}" for i in range(500)]


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_local_file_has_the_expected_problems(name: str) -> None:
    rows = shared_rows(name)
    problems = load(name, SHARED)
    assert len(problems) == len(rows) == DATASETS[name].count
    assert [(p.id, p.text, p.answer) for p in problems] == [(r["id"], r["problem"], r["answer"]) for r in rows]
    assert len({p.id for p in problems}) == len(problems)
    assert [p.answers for p in problems] == [tuple(r.get("answers", ())) for r in rows]
    assert all(p.dataset == name and p.kind == "math" for p in problems)


def test_a_line_separator_inside_a_text_does_not_end_the_line() -> None:
    shared_rows("gsm8k-train")
    assert "\u2028" in load("gsm8k-train", SHARED)[2381].text


def test_unit_tolerance_and_alternatives_are_kept() -> None:
    shared_rows("olympiadbench")
    olympiad = {p.id: p for p in load("olympiadbench", SHARED)}
    assert (olympiad["olympiadbench/316"].unit, olympiad["olympiadbench/316"].tolerance) == ("%", 0.1)
    math = {p.id: p for p in load("math", SHARED)}
    assert math["math/333"].alternatives == ("-3", "3")
    assert math["math/414"].answers == ("-2", "1")


def test_the_demo_is_bundled_and_has_three_levels() -> None:
    loaded = load_recorded("demo")
    assert loaded.source == "bundled"
    assert Counter(p.level for p in loaded.problems) == {"easy": 14, "medium": 13, "hard": 13}
    assert len({p.content_hash for p in loaded.problems}) == 40


def test_the_environment_names_a_data_folder_and_the_argument_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(40)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a" / "demo.jsonl", rows)
    write(tmp_path / "b" / "demo.jsonl", rows[::-1])
    monkeypatch.setenv("HARNESS_DATA_DIR", str(tmp_path / "a"))
    assert load("demo")[0].text == "0?"
    assert load("demo", tmp_path / "b")[0].text == "39?"
    assert load("demo", tmp_path / "b")[0].id == "demo/0"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "line 2: Expecting property name"),
        (b"[]", "line 2: not a JSON object"),
        (b'{"problem": "1?"}', "line 2: answer: Field required"),
        (b'{"problem": "1?", "answer": [1]}', "line 2: answer: Input should be a valid string"),
        (b'{"problem": " ", "answer": "1"}', "line 2: problem: is empty"),
        (b'{"problem": "1?", "answer": ""}', "line 2: the answer is empty"),
        (b'{"problem": "1?", "answer": "1", "answers": "1"}', "line 2: answers: Input should be a valid tuple"),
        (b'{"problem": "1?", "answer": "1", "tolerance": "x"}', "line 2: tolerance: Input should be a valid number"),
        (b'{"problem": "\xff"}', "line 2: 'utf-8' codec"),
        (b'{"problem": "1?", "answer": "1"}', "2 problems, demo should have 40"),
        (b'{"id": "demo/0", "problem": "1?", "answer": "1"}', "line 2: the same id as line 1"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_line(tmp_path: Path, line: bytes, complaint: str) -> None:
    path = tmp_path / "demo.jsonl"
    path.write_bytes(b'{"problem": "0?", "answer": "0"}\n' + line + b"\n")
    with pytest.raises(BadDataset) as e:
        load("demo", tmp_path)
    assert str(path) in str(e.value)
    assert complaint in str(e.value)
    assert "\n" not in str(e.value)


def test_two_problems_with_one_id_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"id": "x/0", "problem": "0?", "answer": "0"}] * 2)
    with pytest.raises(BadDataset, match="line 2: the same id as line 1"):
        read_file(Benchmark(name="x", title="X", count=2), path)


def test_an_unknown_name_is_answered_with_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"^unknown dataset 'gsm9k'; valid: gsm8k, .*, demo, demo-train$"):
        load("gsm9k")


@pytest.mark.parametrize("reach", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "https://127.0.0.1:9"}])
def test_without_a_hub_one_line_names_the_three_ways_quickly(tmp_path: Path, reach: dict[str, str]) -> None:
    program = (
        "from harness.problems.benchmarks import load, DatasetNotFound\n"
        "try: load('math500')\nexcept DatasetNotFound as e: print(e)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {"HF_HOME": str(tmp_path), "HARNESS_DATA_DIR": str(tmp_path)} | reach
    # Without the retries of huggingface_hub, which take 24 seconds; importing datasets takes one or two.
    message = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    assert message.count("\n") == 1
    for way in (f"no file {tmp_path}/math500.jsonl", "the hub", "--data-dir or HARNESS_DATA_DIR", "the bundled demo"):
        assert way in message


def test_the_hub_gets_the_pinned_revision_and_the_commit_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[Any] = []
    commit = revision_of("amc23")

    class Table(list[dict[str, Any]]):
        cache_files = ({"filename": f"/cache/math-ai___amc23/default/0.0.0/{commit}/amc23-test.arrow"},)

    def load_dataset(*place: Any, **options: Any) -> Table:
        requests.append((place, options))
        return Table({"question": f"{i}?", "answer": float(i), "url": "", "id": i} for i in range(40))

    hub = types.ModuleType("datasets")
    hub.__dict__.update(load_dataset=load_dataset, exceptions=types.SimpleNamespace(DatasetsError=RuntimeError))
    monkeypatch.setitem(sys.modules, "datasets", hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = load_recorded("amc23")
    assert loaded.source == f"hub math-ai/amc23@{commit}"
    assert (loaded.problems[7].id, loaded.problems[7].answer) == ("amc23/7", "7")
    assert requests == [(("math-ai/amc23", None), {"split": "test", "revision": commit})]
    assert "HF_HUB_ETAG_TIMEOUT" not in os.environ


def test_another_commit_in_the_cache_is_refused_and_not_recorded_as_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = "0123456789" * 4

    class Table(list[dict[str, Any]]):
        cache_files = ({"filename": f"/cache/math-ai___amc23/default/0.0.0/{other}/amc23-test.arrow"},)

    hub = types.ModuleType("datasets")
    hub.__dict__.update(
        load_dataset=lambda *_, **__: Table(), exceptions=types.SimpleNamespace(DatasetsError=RuntimeError)
    )
    monkeypatch.setitem(sys.modules, "datasets", hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetNotFound, match=f"the newest commit in its cache is {other}, not {revision_of('amc23')}"):
        load_recorded("amc23")


@pytest.mark.parametrize("name", list(DATASETS))
def test_a_pin_is_a_full_commit(name: str) -> None:
    revision = revision_of(name)
    assert revision is None or (len(revision) == 40 and set(revision) <= set(string.hexdigits.lower()))


def test_a_hub_with_other_columns_or_another_count_is_refused() -> None:
    with pytest.raises(
        BadDataset, match=r"openai/gsm8k:main@\w+ on the hub, row 0: no column 'answer'; it has question"
    ):
        from_hub_rows(DATASETS["gsm8k"], [{"question": "q"}])
    with pytest.raises(BadDataset, match="1 problems, aime24 should have 30"):
        from_hub_rows(DATASETS["aime24"], [{"problem": "q", "answer": "1"}])


def test_a_hub_row_without_gold_stays_in_the_denominator() -> None:
    rows = [{"question": f"{i}?", "answer": ""} for i in range(385)]
    assert [p.answer for p in from_hub_rows(DATASETS["gaokao2023en"], rows)] == [""] * 385


@pytest.mark.parametrize(
    ("limit", "ids", "rows"),
    [
        (None, None, list(range(40))),
        (2, None, [0, 1]),
        (None, "3,7,10-12", [3, 7, 10, 11, 12]),
        (None, " 12 , demo/3,3", [3, 12]),
        (2, "30-39", [30, 31]),
        (100, "5", [5]),
    ],
)
def test_select_takes_rows_ranges_and_ids(limit: int | None, ids: str | None, rows: list[int]) -> None:
    assert [p.id for p in select(load("demo"), limit, ids)] == [f"demo/{row}" for row in rows]


@pytest.mark.parametrize(
    ("limit", "ids", "complaint"),
    [
        (None, "40", "unknown problem '40'"),
        (None, "38-41", "unknown problem '40'"),
        (None, "gsm8k/1", "unknown problem 'gsm8k/1'"),
        (None, "9-3", "not a range of problems: '9-3'"),
        (None, "0-99999999999", "not a range of problems"),
        (None, ",", "names no problem"),
    ],
)
def test_select_refuses_what_is_not_there(limit: int | None, ids: str | None, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as e:
        select(load("demo"), limit, ids)
    assert "\n" not in str(e.value)


def test_a_hub_that_does_not_answer_turns_the_libraries_own_switch_on_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import config
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for module in (constants, config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "is_reachable", lambda: False)
    assert not hub.is_offline()
    with hub.quick_failure():
        assert hub.is_offline()
        assert config.HF_HUB_OFFLINE
    assert not hub.is_offline()
    assert not config.HF_HUB_OFFLINE
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    with hub.quick_failure():
        assert not hub.is_offline()


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("gsm8k", {"question": "q", "answer": "a #### b\n#### 1,234 "}, {"answer": "1234"}),
        ("aime24", {"problem": "q", "answer": "025", "id": 60}, {"answer": "25", "id": "aime24/0"}),
        ("amc23", {"question": "q", "answer": 27.0}, {"text": "q", "answer": "27"}),
        ("aime25", {"problem": "q", "answer": 336}, {"answer": "336"}),
        ("aime24", {"problem": "q", "answer": "$336^\\circ$"}, {"answer": "336"}),
        ("gaokao2023en", {"question": "q", "answer": "$145$solution:"}, {"answer": "$145$"}),
        ("gaokao2023en", {"question": "Find it. Answer: A", "answer": ""}, {"text": "Find it.", "answer": "A"}),
        ("gaokao2023en", {"question": "How many answers: two", "answer": "2"}, {"text": "How many answers: two"}),
        ("college_math", {"question": "q", "answer": "$x$", "data_topic": "algebra"}, {"subject": "algebra"}),
        (
            "math500",
            {"problem": "q", "answer": "1", "level": 5, "subject": "Algebra", "solution": "s", "unique_id": "u"},
            {"text": "q", "answer": "1", "level": "5", "subject": "Algebra"},
        ),
        (
            "olympiadbench",
            {"question": "q", "final_answer": ["$(1,2), [3,4)$"], "is_multiple_answer": True, "error": "1e-1"},
            {"answers": ("(1,2)", "[3,4)"), "answer": "$(1,2), [3,4)$", "tolerance": 0.1},
        ),
    ],
)
def test_rows_of_the_hub_become_problems(name: str, row: dict[str, Any], expected: dict[str, Any]) -> None:
    problem = problem_of(name, row)
    assert {field: getattr(problem, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"so $\boxed{\frac{1}{2}}$", [r"\frac{1}{2}"]),
        (r"\boxed{1} and \fbox{2}", ["1", "2"]),
        (r"$\boxed 7$.", ["7"]),
        (r"\boxed{never closed", []),
    ],
)
def test_boxes_are_matched_with_their_braces(text: str, contents: list[str]) -> None:
    assert columns.boxes(text) == contents


def test_math_answers_from_solutions_equal_the_checked_file() -> None:
    for row in shared_rows("math"):
        hub = {"problem": row["problem"], "solution": row["solution"], "level": f"Level {row['level']}", "type": "x"}
        record = benchmarks.math_record(hub)
        for field in ("answer", "answers", "alternatives", "level"):
            assert record.get(field) == row.get(field), row["id"]


def test_olympiadbench_parts_equal_the_checked_file() -> None:
    for row in shared_rows("olympiadbench"):
        hub = {"question": "q", "final_answer": [row["answer"]], "is_multiple_answer": "answers" in row}
        assert (
            benchmarks.olympiadbench_record(hub).get("answers") == row.get("answers") or row["id"] == "olympiadbench/73"
        )


def right_option(problem: Problem) -> str:
    return problem.choices["ABCD".index(problem.answer)]


def test_gpqa_letters_vary_and_always_name_the_right_option() -> None:
    rows = [gpqa_row(i) for i in range(198)]
    first, second = from_hub_rows(DATASETS["gpqa"], rows), from_hub_rows(DATASETS["gpqa"], rows, seed=1)
    for problems in (first, second):
        assert {right_option(p) for p in problems} == {RIGHT}
        assert all(sorted(p.choices) == sorted([RIGHT, "wrong 1", "wrong 2", "wrong 3"]) for p in problems)
        assert all(30 < count < 70 for count in Counter(p.answer for p in problems).values())
    assert 100 < sum(a.answer != b.answer for a, b in zip(first, second, strict=True)) < 198
    assert first == from_hub_rows(DATASETS["gpqa"], rows)
    assert first[0].kind == "choice"


def test_a_local_gpqa_file_gives_the_same_problems_as_the_hub(tmp_path: Path) -> None:
    rows = [gpqa_row(i) for i in range(198)]
    hub = from_hub_rows(DATASETS["gpqa"], rows, seed=3)
    # As the hub's rows come out under another seed: other letters, another order of the options, other rows first.
    local = [
        {"id": p.id, "problem": p.text, "choices": list(p.choices), "answer": p.answer, "subject": p.subject}
        for p in from_hub_rows(DATASETS["gpqa"], rows, seed=8)
    ]
    write(tmp_path / "gpqa.jsonl", local[::-1])
    assert load("gpqa", tmp_path, seed=3) == hub[::-1]


@pytest.mark.parametrize(
    ("choices", "answer"), [((), "A"), (("x", "y"), "C"), (("x", "y"), ""), (("x", "y"), "AB"), (("x", "y"), "x")]
)
def test_an_answer_that_names_no_option_is_refused(choices: tuple[str, ...], answer: str) -> None:
    with pytest.raises(ValueError, match=r"choices|is no option"):
        columns.letter("letter", answer, choices)
