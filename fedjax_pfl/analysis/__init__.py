"""Questions about finished runs and configs, one a file.

About runs: run_folder (all of a folder, by keys), results_frame (as a pandas
table: `pfl.load_results`), export (a model). About a config, which train
nothing: draw_partition, communication_budget.
"""
