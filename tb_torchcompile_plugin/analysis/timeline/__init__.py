"""Slices of a window of time, at the level of detail that the window needs."""
