"""Questions about finished runs, configs and methods, one a file.

About finished runs: id_ood (a figure and its CSV), export (a model). About a
config or a method, which train nothing: draw_partition, communication_budget,
method_table, method_page.
"""
