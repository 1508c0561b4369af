"""Write digests: of a trace that training has just written, or of all traces in a logdir."""
