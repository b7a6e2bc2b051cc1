"""Run directories -> one HTML page; each part of it is a file here."""

from fedjax_pfl.report.page.render import check_output, render, save

__all__ = ['check_output', 'render', 'save']
