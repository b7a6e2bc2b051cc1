"""Published tables, and ours beside them.

cells, published   the published numbers, and a choice of them
plan             from cells and seeds to trainings and evaluations, by keys
results          the runs in a folder of results, found by these keys
execute          train and evaluate what is missing
dry_run          list what it takes
compare          our number for a cell beside the published one
summary_rows, table_files   the files that a folder of results has
claims           what the results show of the claims: experiments/claims.py
id_ood           accuracy on a client's own classes and on others
"""
