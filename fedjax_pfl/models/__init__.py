"""Architectures, and the Task record through which algorithms use them."""
