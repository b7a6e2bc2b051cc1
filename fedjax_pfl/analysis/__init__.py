"""Analyses: a question a file, with its figure or table.

Questions to finished runs are answered by `analyse`, by their names; each of
id_ood, class_curves, similarity, features and training_curves has

  NEEDS_DATA   whether it needs the images, or only the metrics of the run
  HEADER       of the CSV
  answer(runs, options, log) -> Answer

Questions to a config or a method, which train nothing: partition_counts,
elbow, communication_budget, method_table.
"""
