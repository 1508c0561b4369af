"""Digests: the data of one rank that a job needs, in a small file next to the trace."""
