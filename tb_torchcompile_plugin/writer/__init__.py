"""Runs inside the training process: torch, protobuf and the standard library, and never an exception into it."""
