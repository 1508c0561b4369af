"""A model of the profiled steps, which can be changed and walked again."""
