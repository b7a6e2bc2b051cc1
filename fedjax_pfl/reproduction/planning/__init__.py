"""From cells and seeds to trainings and evaluations, by their keys."""
