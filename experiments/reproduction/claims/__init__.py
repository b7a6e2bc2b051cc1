"""Claims of the papers, and what the committed results say of each."""
