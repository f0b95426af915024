"""Fault tests: real servers, real kills, real crashes."""
