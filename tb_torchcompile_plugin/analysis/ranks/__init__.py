"""The ranks of one job together: waits, stragglers, collectives."""
