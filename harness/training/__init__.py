"""SCoT's two kinds of training (arXiv 2504.19095): draft alignment (section 3.3) and selection by the target (3.4)."""
