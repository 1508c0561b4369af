"""TensorBoard's entry point, and routes."""
