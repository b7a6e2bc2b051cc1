"""Claims of the papers, and what the committed results say of each.

entries    the file of claims, checked: comparisons of published cells
numbers    our number of a cell with one seed, with the accuracy of each client
intervals  the difference of several numbers, and its 95 % interval
verdicts   shown, not shown, contradicted or not run
rows       rows of tables, and the words in them
document   the verdicts as Markdown, for README and docs/results.md
figures    two figures: all differences, and those of every client
pages      a report page for each claim
write      all of it for a folder of results: experiments/claims.py
"""
