"""Tables and summaries as text, Markdown and CSV."""
