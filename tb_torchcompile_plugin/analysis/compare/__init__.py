"""Two runs side by side, the gate for CI, and all runs of a logdir."""
