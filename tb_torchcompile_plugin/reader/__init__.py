"""Files to tables: traces, summaries and logs."""
