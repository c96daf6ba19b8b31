"""Benchmark of the grader against bare math-verify in the same session: `python -m grading.bench`."""
