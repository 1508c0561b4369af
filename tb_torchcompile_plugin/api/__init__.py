"""The table of routes, and the session that finds what they are asked about."""
