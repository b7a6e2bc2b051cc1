"""From what runs left behind to numbers, figures and tables."""

from fedjax_pfl.report.tidy import load

__all__ = ['load']
