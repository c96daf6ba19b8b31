"""The grader beside bare math-verify (`python -m tools.bench.grading`)."""
