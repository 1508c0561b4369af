"""`TORCH_TRACE` logs to compile summaries."""
