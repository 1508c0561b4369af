"""Records of torch's compile log, live or from a file, to the compile summary; protobuf and standard library only."""
