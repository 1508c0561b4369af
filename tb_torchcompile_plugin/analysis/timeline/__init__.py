"""The whole trace at every level of detail: lanes, slices, search, ranges."""
