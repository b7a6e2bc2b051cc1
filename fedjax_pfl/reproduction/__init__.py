"""Published tables, and ours beside them.

cells, published, cell_filter   the published numbers, and a choice of them
plan             from cells and seeds to trainings and evaluations, by keys
results, merge   the runs in a folder of results; those of another machine
results_frame    the same as a pandas table: `pfl.load_results`
execute, evaluate_again   train and evaluate what is missing
dry_run, forecast         list what it takes
compare          our number for a cell beside the published one
published_for_run   the published numbers for the setting of a run
comparison_table, summary   the files that a folder of results has
jobs             all of it for one table or figure: experiments/reproduce.py
queue            cells of many tables in their order: experiments/evidence.py
claims           what the results show of the claims: experiments/claims.py
"""
