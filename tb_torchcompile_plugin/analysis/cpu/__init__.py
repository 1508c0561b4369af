"""What the CPU's threads did, and whether generated C++ kernels use its vector units."""
