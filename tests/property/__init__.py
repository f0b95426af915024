"""Property tests: every promise about the algorithms, on random traces, against exact models."""
