"""Comparison of the grader with bare math-verify (`python -m tools.bench.grading`)."""
