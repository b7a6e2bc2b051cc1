"""What one client does, and the averaging that most methods share."""
