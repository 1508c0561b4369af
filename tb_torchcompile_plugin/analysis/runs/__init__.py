"""What is said of a run in one line, beside others: from what was read before, and from summaries alone."""
