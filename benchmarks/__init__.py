"""Everything that measures: speed, memory, growth, faults. ``python -m benchmarks`` is a suite."""
