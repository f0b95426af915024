"""Status: how a gRPC call ends."""

from __future__ import annotations

__all__ = ["Code", "GrpcError"]


class Code:
    """The status codes that we use, by their names in gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call that ends otherwise than OK."""

    def __init__(self, code: int, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
