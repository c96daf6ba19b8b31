"""How fast the grader is, against bare math-verify in the same session: `python -m grading.bench`."""
