"""Questions about finished runs and configs, one a file.

About a run: export (a model). About a config, which train nothing:
draw_partition, communication_budget.
"""
