"""Charts as SVG, for the page and, drawn by `picture`, for figures in files.

svg        elements, scales, ticks, markers
panels     a chart with its words
lines      curves over bands, one curve before others
clients    accuracies and gains of every client
rows       marks and intervals: named rows above one axis
partition  examples by client and class
picture    panels -> a matplotlib figure
"""
