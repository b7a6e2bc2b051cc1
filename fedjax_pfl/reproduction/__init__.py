"""Published tables, and ours beside them.

cells, published, footnotes   the published numbers, and what is known of them
planning     from cells and seeds to trainings and evaluations, by their keys
execution    train and evaluate what is missing; forecast what it takes
results      gather runs in one file of results, and merge files
comparison   our number for a cell or a run beside the published one
output       tables and summaries as text, Markdown and CSV
write_results   summary and tables of a folder of results
jobs         all of it for one table or figure: experiments/reproduce.py
queue        cells of many tables, one after the other: experiments/evidence.py
claims       what the results show of the papers' claims: experiments/claims.py
"""
