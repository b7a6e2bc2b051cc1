"""What goes around any method: functions from a stage to a stage."""
