"""Digests are written: of a trace that training has just left behind, or of all that lie in a logdir."""
