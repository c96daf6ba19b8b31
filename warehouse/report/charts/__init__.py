"""Charts as SVG text: no script, no library in the reader's browser, colors from the page's style sheet."""
