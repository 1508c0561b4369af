"""Which lines of the program take the time: the user's files with what the GPU and the host did for each line."""
