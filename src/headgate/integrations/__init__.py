"""Integrations: one small file per framework, client or queue; import the one you need."""
