"""The measurements. `python -m grading.bench.measure NAME` runs one, with JSON on its standard input and output."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from grading.bench.answers import answers
from grading.bench.timed import timed
from grading.grade import Gold, grade

_SAMPLING_SECONDS = 0.2


def bare(golds: Sequence[Gold], samples: int, remembers_golds: bool) -> dict[str, Any]:
    """Measure bare math-verify in this process, in processor seconds, which depend little on other load."""
    from grading.bench.bare import grade_bare, load

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
    from grading.pool import grade_many, graded

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
    """Watches the memory of this process and its descendants: the peaks of each and of the sum, shared pages once."""

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
