"""The HTTP API, version 1: one file for each thing that can be asked."""
