"""One profiled span with its compile data: facts as columns, in ns."""
