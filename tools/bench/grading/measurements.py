"""Measure the grader and bare math-verify.

`python -m tools.bench.grading.measurements NAME` runs one measurement, with JSON on standard input and output. The
answers are made from the golds of a benchmark: a problem's gold, an equivalent form of it, or the gold of another
problem.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grading.grade import grade
from grading.records import Gold, Grade, Submission

Item = tuple[Submission, Gold]

_SENTENCES = (
    "Adding both sides gives the result, so the answer is $\\boxed{%s}$.",
    "We check the remaining case and find\n\\[\n\\boxed{%s}\n\\]",
    "Therefore the final answer is \\boxed{%s}. I hope it is correct.",
    "**Answer:** $\\boxed{%s}$",
)
_SPACED = re.compile(r"(?<=[\w})])\s*([+=<>]|-(?=[\w\\({]))\s*")


def answers(golds: Sequence[Gold], samples: int) -> Iterator[Item]:
    """Yield `samples` answers to each problem, sample by sample as in a run, all with distinct texts.

    Of every four samples, two contain the gold, one an equivalent form of it, and one the gold of another problem.
    """
    for sample in range(samples):
        for number, gold in enumerate(golds):
            answer = _answer(golds, number, sample)
            chain = f"Sample {sample} of problem {number}. " + "First we set up what is given and simplify. " * 8
            yield Submission(chain + _SENTENCES[sample % 4] % answer, "answered", thinks=False), gold


def _answer(golds: Sequence[Gold], number: int, sample: int) -> str:
    own = _written(golds[number])
    if sample % 4 == 2:
        return rewritten(own)
    if sample % 4 == 3:
        return _written(golds[(number + 1 + 7 * sample % (len(golds) - 1)) % len(golds)])
    return own


def _written(gold: Gold) -> str:
    return ", ".join(gold.answers) if gold.answers else (gold.alternatives or (gold.answer,))[0]


def rewritten(answer: str) -> str:
    r"""Return an answer in an equivalent notation: `\dfrac`, `\left(`, spaces around signs, a decimal point."""
    text = answer.replace(r"\frac", r"\dfrac") if r"\frac" in answer else answer
    if text == answer and "(" in text and r"\left" not in text and text.count("(") == text.count(")"):
        text = text.replace("(", r"\left(").replace(")", r"\right)")
    text = _SPACED.sub(r" \1 ", text)
    return f"{text}.0" if re.fullmatch(r"-?\d{1,6}", text) else text


def load() -> None:
    """Import the libraries and let them build their tables."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verify(parse(r"$\frac{1}{2}+x$"), parse(r"$x+\frac{1}{2}$"))


def grade_bare(items: Iterable[Item], remembers_golds: bool) -> int:
    """Return how many answers math-verify accepts, each parsed and verified with its default limits.

    With `remembers_golds`, each gold is parsed only once, which makes this baseline faster than math-verify as it is
    usually used.
    """
    from math_verify import parse, verify

    @lru_cache(maxsize=None if remembers_golds else 0)
    def parsed(gold: Gold) -> Any:
        return parse(rf"\boxed{{{gold.answer}}}")

    return sum(bool(verify(parsed(gold), parse(submission.text))) for submission, gold in items)


def timed(submission: Submission, gold: Gold) -> Grade:
    """Grade one submission and return the processor time of the thread in place of the wall-clock time.

    The thread's time is used because the kernel counts the time of a process under a limit in whole ticks.
    """
    used = time.thread_time()
    result = grade(submission, gold)
    return replace(result, seconds=time.thread_time() - used)


_SAMPLING_SECONDS = 0.2


def bare(golds: Sequence[Gold], samples: int, remembers_golds: bool) -> dict[str, Any]:
    """Measure bare math-verify in this process, in processor seconds, which depend little on other load."""
    load()
    items = list(answers(golds, samples))
    started, used = time.perf_counter(), time.process_time()
    correct = grade_bare(items, remembers_golds)
    return _spent(len(items), time.perf_counter() - started, time.process_time() - used) | {"correct": correct}


def in_process(golds: Sequence[Gold], samples: int) -> dict[str, Any]:
    """Measure `grading.grade` in this process."""
    from grading.reading import symbolic

    symbolic.load()
    items = list(answers(golds, samples))
    started, used = time.perf_counter(), time.process_time()
    verdicts = Counter(grade(*item).verdict for item in items)
    return _spent(len(items), time.perf_counter() - started, time.process_time() - used) | {
        "correct": verdicts["correct"]
    }


def pool(golds: Sequence[Gold], samples: int, workers: int, time_limit_seconds: float) -> dict[str, Any]:
    """Measure `grading.grade_many`: throughput, processor time of the workers, memory, and the longest gap."""
    from grading.grader_pool import grade_many, graded

    items = answers(golds, samples)
    memory = _Memory()
    verdicts: Counter[str] = Counter()
    cpu_seconds = longest_gap_seconds = 0.0
    grades = grade_many(items, workers, time_limit_seconds, grade_one=timed)
    [next_grade] = graded([next(grades)])  # the workers have started
    verdicts[next_grade.verdict] += 1
    started = last = time.perf_counter()
    for outcome in grades:
        [next_grade] = graded([outcome])
        now = time.perf_counter()
        longest_gap_seconds, last = max(longest_gap_seconds, now - last), now
        verdicts[next_grade.verdict] += 1
        cpu_seconds += next_grade.seconds
    return _spent(verdicts.total() - 1, last - started, cpu_seconds) | {
        "verdicts": dict(verdicts),
        "correct": verdicts["correct"],
        "longest_gap_seconds": longest_gap_seconds,
        **memory.stop(),
    }


def _spent(number: int, wall_seconds: float, cpu_seconds: float) -> dict[str, Any]:
    return {"answers": number, "wall_seconds": wall_seconds, "cpu_seconds": cpu_seconds}


class _Memory:
    """Watches the memory of this process and its descendants: the peak of the largest descendant, and the peak of the
    sum, in which shared pages count once.
    """

    def __init__(self) -> None:
        import psutil

        self._process, self._psutil = psutil.Process(), psutil
        self._peak_total = self._peak_worker = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLING_SECONDS):
            sizes = [self._size(process) for process in (self._process, *self._process.children(recursive=True))]
            self._peak_total = max(self._peak_total, sum(sizes))
            self._peak_worker = max([self._peak_worker, *sizes[1:]])

    def _size(self, process: Any) -> int:
        try:
            return int(process.memory_full_info().pss)
        except self._psutil.Error:
            return 0

    def stop(self) -> dict[str, int]:
        self._ended.set()
        self._thread.join()
        return {"peak_bytes": self._peak_total, "peak_worker_bytes": self._peak_worker}


MEASUREMENTS = {"bare": bare, "in_process": in_process, "pool": pool}


def _gold(fields: dict[str, Any]) -> Gold:
    for name in ("answers", "alternatives", "choices"):
        fields[name] = tuple(fields[name])
    return Gold(**fields)


def main() -> None:
    """Read golds and parameters from standard input and print the measurement as one JSON object."""
    parameters = json.load(sys.stdin)
    golds = [_gold(fields) for fields in parameters.pop("golds")]
    measure: Any = MEASUREMENTS[sys.argv[1]]
    print(json.dumps(measure(golds, **parameters)))


if __name__ == "__main__":
    main()
