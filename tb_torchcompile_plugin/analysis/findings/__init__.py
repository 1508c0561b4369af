"""What to change, largest gain first: one rule a class."""
