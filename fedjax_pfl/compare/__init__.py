"""From questions to runs: plans, their price, their training, the choice.

combinations   a grid and random ranges
form           methods by one protocol, each tuned alike; protocol: it in words
plan           what these make, and the cells of published tables: trainings
               with labels; what could not be trained is refused
forecast       what a plan takes
train          the runs of a plan; of a form the choice of each method, too
"""
