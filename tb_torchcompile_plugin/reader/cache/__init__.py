"""What is kept on disk: parsed traces, copies of remote files, and rows about files that were read."""
