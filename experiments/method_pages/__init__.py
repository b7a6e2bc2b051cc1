"""The table, the pages and the pictures of all methods, from their files."""
