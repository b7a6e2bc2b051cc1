"""From models to numbers: scores, calibration, statistics over clients."""
