"""Grade answers: text and gold in, grade out, without knowledge of models or methods.

Model output is hostile input. It is never executed, only parsed, and `grade_many` parses it in killable processes.
`grading.grade.grade` is the same pure function in the current process, for trusted text and single cases.

Importing this package is cheap, because it loads no symbolic library. The grader processes load the symbolic libraries
when they start; `grading.grade` loads them with the first answer that requires them.
"""

from grading.grader_pool import GraderFailed, Ungraded, grade_many, graded
from grading.records import GRADER_VERSION, VERDICTS, Gold, Grade, StopReason, Submission, Verdict, grader_version

__all__ = [
    "GRADER_VERSION", "VERDICTS", "Gold", "Grade", "GraderFailed", "StopReason", "Submission", "Ungraded", "Verdict",
    "grade_many", "graded", "grader_version",
]  # fmt: skip
