"""Columns and rows -> text, Markdown and cells of the page."""
