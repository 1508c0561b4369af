"""Kineto traces to columns, of any size, with several processes."""
