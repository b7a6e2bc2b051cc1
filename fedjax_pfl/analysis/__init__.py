"""Questions about finished runs and configs, one a file.

About a run: export (a model). About a config, without training:
communication_budget.
"""
