"""Our numbers beside the published ones."""
