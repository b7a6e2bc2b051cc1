"""Ways to run the rounds of a stage: one interface, one file for each.

driver             the interface: calls -> results
choose             the driver of a stage, by settings and memory
compiled           one compiled program for all rounds of a call
host_offload       clients on the host: each round is fed its cohort
debug              client after client in Python, without compilation
multi_seed         several seeds in one compiled program
without_diverged   rounds once more, without the clients that diverge
"""
