"""What Triton made of the kernels that inductor generated, and what tuning measured."""
