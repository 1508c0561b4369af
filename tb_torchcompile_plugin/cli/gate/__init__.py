"""`tb-torchcompile compare BASE HEAD --fail-on …` and `tb-torchcompile baseline`: a gate for CI."""
