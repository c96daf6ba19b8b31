"""Reports on runs: a self-contained HTML page with a trace viewer, or tables as Markdown or LaTeX."""
