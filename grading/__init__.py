"""Grading of answers: text and gold in, grade out, without any knowledge of models and methods.

The output of a model is hostile input: it is never evaluated, only parsed, and `grade_many` does that in processes that
can be killed. `grading.grade.grade` is the same pure function in this process, for trusted text and for single cases.

Importing this package is cheap: the readers load in those processes, and the symbolic libraries with the first answer
that needs them.
"""

from grading.grader_pool import GraderFailed, Ungraded, grade_many, graded
from grading.records import GRADER_VERSION, VERDICTS, Gold, Grade, StopReason, Submission, Verdict, grader_version

__all__ = [
    "GRADER_VERSION", "VERDICTS", "Gold", "Grade", "GraderFailed", "StopReason", "Submission", "Ungraded", "Verdict",
    "grade_many", "graded", "grader_version",
]  # fmt: skip
