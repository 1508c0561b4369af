"""What the threads do: the tree of slices, operators, memory events, causes."""
