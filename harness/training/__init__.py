"""SCoT's two trainings (arXiv 2504.19095, sections 3.3 and 3.4): the draft's alignment, the target's selection."""
