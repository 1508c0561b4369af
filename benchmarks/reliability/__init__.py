"""What withstands what: mutants, kills and cycles by the thousand. The figures are in docs/benchmarks.md."""
