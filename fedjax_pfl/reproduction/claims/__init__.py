"""Claims of the papers, and what the committed results say of each.

entries    the file of claims, checked: comparisons of published cells
verdicts   our numbers of them: shown, not shown, contradicted, half or not run
document   the verdicts as Markdown, for README and docs/results.md
figures    two figures: all differences, and those of every client
write      all of it for a folder of results: experiments/claims.py
"""
