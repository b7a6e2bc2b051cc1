"""A queue of published cells, worked through when the machine has time.

entries    the file that lists them, checked
steps      an entry with one seed: what it has to train, and how far that is
deadline   stop after some minutes
show       the queue as a table
work       do the steps, one after the other: experiments/evidence.py
"""
