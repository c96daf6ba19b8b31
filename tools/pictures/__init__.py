"""The README's pictures: a terminal recording and two views of the report page."""
