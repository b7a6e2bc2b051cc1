"""What a finished run can be asked: one question a file."""
