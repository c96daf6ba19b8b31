"""Processing of finished runs: grading, scores, comparisons, tracking, training data."""
