"""Benchmarks of speed, memory, growth and behaviour under faults; see README.md."""
