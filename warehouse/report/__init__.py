"""Reports for people: one self-contained HTML file with a trace viewer, or its tables as Markdown or LaTeX."""
