"""Run directories -> one HTML page, and a figure; each part is a file here."""
