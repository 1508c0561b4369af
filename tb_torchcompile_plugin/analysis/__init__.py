"""The answers: compile, runtime, timeline, causes, ranks and compare hold the functions that return their rows."""
