"""Charts as SVG, for the page and, drawn by `picture`, for figures in files.

svg        elements, scales, ticks, markers; a chart with its words
lines      curves over bands
rows       named rows above one axis: clients, marks, intervals; gains
partition  examples by client and class
picture    panels -> a matplotlib figure
"""
