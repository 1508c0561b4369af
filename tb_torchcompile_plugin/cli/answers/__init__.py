"""Answers that are bounded and addressed, in a terminal."""
