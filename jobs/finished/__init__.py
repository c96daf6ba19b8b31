"""What happens to a run after its workers: grading, conclusion, scores, comparisons, training data."""
