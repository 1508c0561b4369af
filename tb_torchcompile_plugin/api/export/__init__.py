"""A run as one file that opens from disk: the answers to the tab's questions, embedded beside the tab itself."""
