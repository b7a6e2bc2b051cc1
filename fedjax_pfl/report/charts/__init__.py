"""Charts as SVG, for the page and, drawn by `picture`, for figures in files.

svg        elements, scales, ticks, markers
lines      curves over bands, one curve before others
rows       clients, levels and intervals: named rows above one axis
bars       the gain of every client
partition  examples by client and class
sweeps     heat map, strip of dots
scatter    points in classes
picture    charts -> a matplotlib figure
"""
