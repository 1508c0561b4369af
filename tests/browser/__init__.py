"""Tests that drive a real TensorBoard with a real browser."""
