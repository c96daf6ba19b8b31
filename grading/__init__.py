"""Text and gold in, grade out; knows no model and no method.

What a model wrote is hostile input: it is never evaluated, only parsed, and `grade_many` does that in processes that
can be killed. `grade` is the same pure function in this process, for trusted text and for looking at one case.

Importing this package is cheap: the symbolic libraries load with the first answer that needs them.
"""

from grading.grade import (
    GRADER_VERSION,
    VERDICTS,
    Gold,
    Grade,
    StopReason,
    Submission,
    Verdict,
    grade,
    grader_version,
)
from grading.pool import grade_many

__all__ = [
    "GRADER_VERSION",
    "VERDICTS",
    "Gold",
    "Grade",
    "StopReason",
    "Submission",
    "Verdict",
    "grade",
    "grade_many",
    "grader_version",
]
