"""Nights: their record, their verdict jobs and page, and how they recover."""
