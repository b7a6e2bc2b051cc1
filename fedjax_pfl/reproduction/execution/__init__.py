"""Train and evaluate what is missing, and forecast what it takes."""
