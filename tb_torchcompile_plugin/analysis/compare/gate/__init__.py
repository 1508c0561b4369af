"""The gate: what of a run is compared with a run before, and which change of it is too much."""
