"""The formats of the warehouse's commands, which a command names before it imports what writes them."""

from __future__ import annotations

from typing import Literal

ComparisonFormat = Literal["table", "json", "csv", "markdown", "latex"]
QueryFormat = Literal["table", "csv", "json", "parquet"]
TableFormat = Literal["table", "csv", "markdown", "latex"]
VerdictFormat = Literal["table", "json", "markdown", "junit"]
ReportFormat = Literal["html", "md", "latex"]
