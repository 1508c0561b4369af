"""The contents of a logdir, local or remote, by file names."""
