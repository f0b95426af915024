"""The compiled form's Record: numbers as they are, of which Python ones are made when read."""

cimport cython

__all__ = ["Record"]


@cython.no_gc  # a decision is made and dropped with each hit, and takes no part in a cycle
@cython.freelist(256)
cdef class Record:
    """What a decision keeps."""
