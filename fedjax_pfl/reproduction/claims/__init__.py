"""Claims of the papers, and what the committed results say of each.

claims_file  the file of claims, checked: comparisons of published cells
verdicts     our numbers: shown, not shown, contradicted, half or not run
claims_page  the verdicts as Markdown, for README and docs/results.md
write        all of it for a folder of results, and two figures
"""
