"""A queue of published cells, worked through when the machine has time.

entries    the file that lists them, checked
states     an entry with one seed, and how far it is: as a table
deadline   stop after some minutes
work       do what is open, one after the other: experiments/evidence.py
"""
