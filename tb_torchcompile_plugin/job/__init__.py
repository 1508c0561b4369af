"""Several spans of one run, one of each rank, joined: whose collectives belong together, and who waits for whom."""
