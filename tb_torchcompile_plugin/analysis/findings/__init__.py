"""What to change, most time to save first: one rule a class."""
