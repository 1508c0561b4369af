"""A run as one file that opens from disk: the answers to the tab's questions, embedded next to the tab itself."""
