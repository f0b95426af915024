# The C types of engine.py, whose source is compiled as it is.
cimport cython
from libc.stdint cimport int64_t

# Volatile: the compiler must not change the order in which words are read and written.
cdef extern from *:
    """
    #include <stdint.h>
    typedef volatile int64_t headgate_word;
    """
    ctypedef int64_t word_t "headgate_word"

cdef int64_t BUMP, FREE, IS_DATA, IS_FREE, JOURNAL, KIND, LINK, NEXT, NODE, PAYLOAD, PENDING, USED


@cython.final
cdef class Engine:
    cdef word_t* words
    cdef object view
    cdef readonly object path
    cdef readonly int64_t entries, heads, mask, chunks, base, end

    cpdef int64_t get(self, int64_t place)
    @cython.locals(old=int64_t, number=int64_t, entry=int64_t)
    cpdef int put(self, int64_t place, int64_t value) except -1
    cpdef int poke(self, int64_t place, int64_t value) except -1
    cpdef int add(self, int64_t place, int64_t value) except -1
    cpdef int commit(self) except -1
    @cython.locals(number=int64_t)
    cpdef int64_t pending(self) except -1
    @cython.locals(number=int64_t, entry=int64_t, place=int64_t)
    cpdef int rollback(self) except -1
    cpdef int64_t at(self, int64_t chunk) except -1
    cpdef int64_t chunk(self, int64_t at)
    cpdef int64_t kind(self, int64_t at)
    cpdef int64_t next(self, int64_t at)
    cpdef int join(self, int64_t at, int64_t chunk) except -1
    cpdef int64_t free(self)
    @cython.locals(chunk=int64_t, at=int64_t)
    cpdef int64_t alloc(self, int64_t kind) except -1
    cpdef int release(self, int64_t at) except -1
    @cython.locals(chunk=int64_t, at=int64_t, link=int64_t, left=int64_t)
    cpdef int64_t find(self, int64_t name, int64_t kind) except -1
    @cython.locals(at=int64_t, head=int64_t, place=int64_t)
    cpdef int64_t insert(self, int64_t name, int64_t kind) except -1
    @cython.locals(head=int64_t, chunk=int64_t, goal=int64_t, left=int64_t, before=int64_t)
    cpdef int remove(self, int64_t at) except -1
    @cython.locals(view=int64_t[::1], done=int64_t, count=int64_t, at=int64_t, place=int64_t)
    cpdef bytes load(self, int64_t chunk, int64_t length)
    @cython.locals(view=int64_t[::1], done=int64_t, count=int64_t, first=int64_t, last=int64_t, at=int64_t, place=int64_t)
    cpdef int64_t save(self, int64_t chunk, bytes data) except -1
    @cython.locals(at=int64_t, left=int64_t)
    cpdef int drop(self, int64_t chunk) except -1
    @cython.locals(at=int64_t)
    cpdef int64_t _data(self, int64_t chunk) except -1
