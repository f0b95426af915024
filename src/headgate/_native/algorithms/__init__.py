"""The algorithms, compiled."""
