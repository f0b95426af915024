"""Envoy: the rate limit service, the quota service and health, as gRPC over ASGI."""
