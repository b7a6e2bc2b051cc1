"""What comes after a run; each layer imports only those above it.

runs        run directories -> records, and groups of seeds
statistics  differences, their intervals, and which of them hold
tables      columns and rows -> text, Markdown, LaTeX, CSV, cells of the page
charts      arrays -> SVG, and figures in files
page        all of these in one HTML file, in the style of each method
"""
