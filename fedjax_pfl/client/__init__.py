"""What one client does: local training, personalization; clusters of clients."""
