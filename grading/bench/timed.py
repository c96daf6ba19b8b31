"""The function that the workers of the benchmark run, in a module that they can import by name."""

from __future__ import annotations

import time
from dataclasses import replace

from grading.grade import Gold, Grade, Submission, grade


def timed(submission: Submission, gold: Gold) -> Grade:
    """Grade one submission and return the processor time of the thread in place of the wall-clock time.

    The thread's time is used because the kernel counts the time of a process under a limit in whole ticks.
    """
    used = time.thread_time()
    result = grade(submission, gold)
    return replace(result, seconds=time.thread_time() - used)
