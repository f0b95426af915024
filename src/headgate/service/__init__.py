"""The stand-alone service: one limiter for every language."""
