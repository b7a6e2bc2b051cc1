"""What one client does: local training, personalization, clustering."""
