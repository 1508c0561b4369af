"""The layout that torch's C++ writer gives a trace, read at many events at once; `decode` takes what fits it."""
