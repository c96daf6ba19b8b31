"""A module that loads the symbolic libraries on import; the parent process of the grader processes preloads it."""

from grading.grader_pool import without_traceback_of_forks
from grading.reading.symbolic import load

load()
without_traceback_of_forks()
