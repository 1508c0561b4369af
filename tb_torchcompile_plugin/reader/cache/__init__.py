"""What is kept on disk: parsed traces, and copies of remote files."""
