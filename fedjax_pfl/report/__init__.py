"""From results of runs to figures, tables, a page, and a data frame."""

from fedjax_pfl.report.results_frame import load_results

__all__ = ['load_results']
