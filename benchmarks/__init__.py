"""headgate beside other rate limiters; start with `python -m benchmarks.run`."""
