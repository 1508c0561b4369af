"""How do the ranks of a job differ, and what do collectives take?"""
