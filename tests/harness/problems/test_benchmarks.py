"""Benchmarks: every source becomes the same problems, and what is not complete or not well-formed is refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.problems import benchmarks, hub
from harness.problems.benchmarks import (
    DATASETS,
    BadDataset,
    Benchmark,
    DatasetNotFound,
    from_hub_rows,
    load,
    load_recorded,
    select,
)
from tests.harness.problems.stand_ins import Table, put_datasets
from tests.shared import SHARED, shared_rows

SHARED_NAMES = [
    name
    for name, of in DATASETS.items()
    if name not in {"aime25", "gpqa", "demo", "demo-train"} and not (of.part_of or of.spans)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_DATA_DIR", raising=False)


def test_a_part_of_a_benchmark_is_found_by_the_texts_of_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the list, whatever the order and the blanks of the copy; ids stay those of the whole."""
    monkeypatch.setitem(DATASETS, "whole", Benchmark(name="whole", title="w", count=4))
    monkeypatch.setitem(DATASETS, "few", Benchmark(name="few", title="f", count=2, part_of="whole"))
    monkeypatch.setattr(benchmarks, "SELECTIONS", tmp_path)
    texts = ["1  thing", "two", "three", "four"]
    lines = "".join(f"{benchmarks.text_hash(text)}\n" for text in ("three", "1 thing"))
    (tmp_path / "few.txt").write_text(f"# two of four\n{lines}")
    write(tmp_path / "whole.jsonl", [{"problem": text, "answer": "1"} for text in texts])
    loaded = load_recorded("few", tmp_path)
    assert [(p.id, p.dataset, p.text) for p in loaded.problems] == [
        ("whole/2", "few", "three"),
        ("whole/0", "few", "1  thing"),
    ]
    assert str(tmp_path / "whole.jsonl") in loaded.source
    write(tmp_path / "whole.jsonl", [{"problem": f"{text}!", "answer": "1"} for text in texts])
    with pytest.raises(BadDataset, match="0 of the 2 problems of few"):
        load("few", tmp_path)


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_local_file_has_the_expected_problems(name: str) -> None:
    rows = shared_rows(name)
    problems = load(name, SHARED)
    assert len(problems) == len(rows) == DATASETS[name].count
    assert [(p.id, p.text, p.answer) for p in problems] == [(r["id"], r["problem"], r["answer"]) for r in rows]
    assert len({p.id for p in problems}) == len(problems)
    assert [p.answers for p in problems] == [tuple(r.get("answers", ())) for r in rows]
    assert all(p.dataset == name and p.kind == "math" for p in problems)


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
        (b"{", "line 2:"),
        (b'{"problem": "1?"}', "line 2: answer:"),
        (b'{"problem": "1?", "answer": "1", "tolerance": "x"}', "line 2: tolerance:"),
        (b'{"problem": "1?", "answer": "1"}', "expected 40 for demo"),
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


@pytest.mark.parametrize("is_pinned", [True, False])
def test_the_hub_gets_the_pinned_revision_and_another_commit_is_refused(
    is_pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []
    pins = [of.source.revision for of in DATASETS.values() if isinstance(of.source, hub.HubSource)]
    assert [pin for pin in pins if pin and not re.fullmatch("[0-9a-f]{40}", pin)] == []
    source = DATASETS["amc23"].source
    assert isinstance(source, hub.HubSource)
    pinned = source.revision
    commit = pinned if is_pinned else "0123456789" * 4

    def load_dataset(*place: Any, **options: Any) -> Table:
        requests.append((place, options))
        return Table("math-ai___amc23", commit, ({"question": f"{i}?", "answer": float(i), "id": i} for i in range(40)))

    put_datasets(monkeypatch, load_dataset)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if not is_pinned:
        with pytest.raises(DatasetNotFound, match=f"{pinned} .*{commit}"):
            load_recorded("amc23")
        return
    loaded = load_recorded("amc23")
    assert loaded.source.endswith(f"math-ai/amc23@{commit}")
    assert (loaded.problems[7].id, loaded.problems[7].answer) == ("amc23/7", "7")
    assert requests == [(("math-ai/amc23", None), {"split": "test", "revision": commit})]


def test_an_unknown_name_other_columns_or_another_count_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown dataset 'gsm9k'; valid: gsm8k, .*, demo, demo-train$"):
        load("gsm9k")
    with pytest.raises(BadDataset, match=r"openai/gsm8k:main@\w+ .*'answer'; found: question"):
        from_hub_rows(DATASETS["gsm8k"], [{"question": "q"}])
    with pytest.raises(BadDataset, match="expected 30 for aime24"):
        from_hub_rows(DATASETS["aime24"], [{"problem": "q", "answer": "1"}])


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


@pytest.mark.parametrize("ids", ["38-41", "gsm8k/1", "9-3", "0-99999999999", ","])
def test_select_refuses_what_is_not_there(ids: str) -> None:
    with pytest.raises(ValueError, match=ids) as e:
        select(load("demo"), None, ids)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("gsm8k", {"question": "q", "answer": "a #### b\n#### 1,234 "}, {"answer": "1234"}),
        ("aime24", {"problem": "q", "answer": "025", "id": 60}, {"answer": "25", "id": "aime24/0"}),
        ("amc23", {"question": "q", "answer": 27.0}, {"text": "q", "answer": "27"}),
        ("gaokao2023en", {"question": "Find it. Answer: A", "answer": ""}, {"text": "Find it.", "answer": "A"}),
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
    [problem] = from_hub_rows(DATASETS[name].model_copy(update={"count": 1, "hub_count": None}), [row])
    assert {field: getattr(problem, field) for field in expected} == expected


def test_math_answers_from_solutions_equal_the_checked_file() -> None:
    for row in shared_rows("math"):
        hub = {"problem": row["problem"], "solution": row["solution"], "level": f"Level {row['level']}", "type": "x"}
        record = benchmarks.math_record(hub)
        for field in ("answer", "answers", "alternatives", "level"):
            assert record.get(field) == row.get(field), row["id"]


def test_gpqa_letters_vary_and_always_name_the_right_option() -> None:
    wrong = {f"Incorrect Answer {i}": f"wrong {i}" for i in (1, 2, 3)}
    rows = [{"Question": f"Which of {i}?\n", "Correct Answer": "right \n", **wrong} for i in range(198)]
    first, second = from_hub_rows(DATASETS["gpqa"], rows), from_hub_rows(DATASETS["gpqa"], rows, seed=1)
    for problems in (first, second):
        assert {p.choices["ABCD".index(p.answer)] for p in problems} == {"right"}
        assert all(sorted(p.choices) == ["right", "wrong 1", "wrong 2", "wrong 3"] for p in problems)
        assert all(30 < count < 70 for count in Counter(p.answer for p in problems).values())
    assert 100 < sum(a.answer != b.answer for a, b in zip(first, second, strict=True)) < 198
    assert first == from_hub_rows(DATASETS["gpqa"], rows)
    assert first[0].kind == "choice"
