"""The contents of a run folder: specification, plan, shards, journals, trace files, grades, submissions."""
