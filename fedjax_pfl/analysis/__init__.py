"""Analyses: a question a file, with its figure or table.

Questions to finished runs, which `analyse` answers by their names: id_ood
and features; each has a HEADER of its CSV and answer(runs, options, log) ->
Answer. Questions to a config or a method, which train nothing:
partition, communication_budget, method_table.
"""
