"""What happens to a run after its workers: grading, scores, comparisons, tracking, training data."""
