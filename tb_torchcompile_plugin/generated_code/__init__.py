"""What the compiler left behind, without any trace: graphs, output code, its kernels and the user's lines."""
