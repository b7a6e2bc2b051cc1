"""Run directories -> one HTML page; each part of it is a file here."""

from fedjax_pfl.report.page.client_sections import Opening, Pair
from fedjax_pfl.report.page.render import check_output, render, save

__all__ = ['Opening', 'Pair', 'check_output', 'render', 'save']
