"""SCoT's two trainings (arXiv 2504.19095): alignment of the draft (section 3.3), selection by the target (3.4)."""
