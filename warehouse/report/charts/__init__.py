"""Charts as SVG text: no script, no library in the reader's browser, colours from the page's style sheet."""
