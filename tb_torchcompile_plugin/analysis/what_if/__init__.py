"""What could be mended in the profiled steps, and what each would bring."""
