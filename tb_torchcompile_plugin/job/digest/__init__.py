"""Digests: what a job needs of one of its ranks, in a small file next to the trace."""
