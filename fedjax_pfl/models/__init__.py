"""Models, and the Task that an algorithm sees of them."""
