"""What lies in a logdir, local or remote, by its file names."""
