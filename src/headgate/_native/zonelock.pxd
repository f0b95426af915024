from libc.stdint cimport int64_t

from .stores.zone.engine cimport Engine

cdef extern from "pthread.h":
    ctypedef struct pthread_mutex_t:
        pass


cdef class RobustLock:
    cdef Engine engine
    cdef int64_t place
    cdef readonly bint held
    cdef object waited

    cdef pthread_mutex_t* mutex(self) noexcept nogil
    cdef bint enter_quickly(self) except -1
    cdef void leave_quickly(self) noexcept
    cpdef int enter(self, double patience) except -1
    cdef int wait(self, double patience) except -1
    cpdef int leave(self) except -1
