"""Run directories -> one HTML page; its parts, each a file of this folder."""

from fedjax_pfl.report.page.render import check_name, render, save

__all__ = ['check_name', 'render', 'save']
