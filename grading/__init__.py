"""Text and gold in, grade out; knows no model and no method."""
