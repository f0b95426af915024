# cython: boundscheck=False, wraparound=False
"""What a compiled zone has for itself: its words bound to memory, a robust mutex, SipHash."""
from cpython.buffer cimport PyBUF_SIMPLE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.errno cimport EBUSY, ETIMEDOUT
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from .hashing cimport siphash
from .stores.zone.engine cimport Engine, word_t

from headgate.errors import StoreError

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/syscall.h>
    #define headgate_robust 1
    static int headgate_consistent(pthread_mutex_t *mutex) { return pthread_mutex_consistent(mutex); }
    static int headgate_init(pthread_mutex_t *mutex) {
        pthread_mutexattr_t kind;
        int error = pthread_mutexattr_init(&kind);
        if (!error) error = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        if (!error) error = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        if (!error) error = pthread_mutex_init(mutex, &kind);
        pthread_mutexattr_destroy(&kind);
        return error;
    }
    /* Asked of the kernel once for each thread, and again after a fork. */
    static __thread long headgate_known;
    static void headgate_forked(void) { headgate_known = 0; }
    static void headgate_begin(void) { pthread_atfork(NULL, NULL, headgate_forked); }
    static long headgate_thread(void) {
        if (!headgate_known) headgate_known = syscall(SYS_gettid);
        return headgate_known;
    }
    /* A robust mutex names the thread that holds it, and that at every moment. */
    #if defined(__GLIBC__)
    #define headgate_owner(mutex) (*(volatile int *)(mutex) & 0x3fffffff)
    #else
    #define headgate_owner(mutex) 0
    #endif
    /* A monotonic deadline where the library knows one; a step of the wall clock would else
       shorten or stretch one slice of a wait. */
    #if defined(__GLIBC__) && __GLIBC_PREREQ(2, 30)
    #define headgate_clock CLOCK_MONOTONIC
    #define headgate_until(mutex, end) pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, end)
    #else
    #define headgate_clock CLOCK_REALTIME
    #define headgate_until(mutex, end) pthread_mutex_timedlock(mutex, end)
    #endif
    static int headgate_lock_for(pthread_mutex_t *mutex, long nanoseconds) {
        struct timespec end;
        clock_gettime(headgate_clock, &end);
        end.tv_nsec += nanoseconds;
        if (end.tv_nsec >= 1000000000L) { end.tv_nsec -= 1000000000L; end.tv_sec += 1; }
        return headgate_until(mutex, &end);
    }
    #else
    #define headgate_robust 0
    #define headgate_owner(mutex) 0
    static int headgate_consistent(pthread_mutex_t *mutex) { return 0; }
    static int headgate_init(pthread_mutex_t *mutex) { return ENOSYS; }
    static void headgate_begin(void) { }
    static long headgate_thread(void) { return (long)getpid(); }
    static int headgate_lock_for(pthread_mutex_t *mutex, long nanoseconds) { return ENOSYS; }
    #define EOWNERDEAD -2
    #endif
    #if defined(__x86_64__) || defined(__i386__)
    #define headgate_pause() __builtin_ia32_pause()
    #else
    #define headgate_pause() __asm__ volatile("" ::: "memory")
    #endif
    /* A mutex of another kind, which only damage can make, could end the process. */
    #if defined(__GLIBC__)
    #define headgate_alike(one, other) ((one)->__data.__kind == (other)->__data.__kind)
    #else
    #define headgate_alike(one, other) 1
    #endif
    /* What is written before the lock is given up is not written after it. */
    #define headgate_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    """
    int pthread_mutex_trylock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    int EOWNERDEAD
    int headgate_robust
    int headgate_consistent(pthread_mutex_t*) nogil
    int headgate_init(pthread_mutex_t*) nogil
    void headgate_begin()
    int headgate_owner(pthread_mutex_t*) nogil
    bint headgate_alike(pthread_mutex_t*, pthread_mutex_t*)
    long headgate_thread() nogil
    int headgate_lock_for(pthread_mutex_t*, long) nogil
    void headgate_pause() nogil
    void headgate_fence() nogil

cdef enum:
    PENDING = 64
    HOLDER = 65
    RECOVERIES = 67
    SPINS = 100
    QUICK_SPINS = 400  # about as long as a few decisions of others take
    ROOM = 256
    HEADER = 4096

cdef long SLICE = 2_000_000
cdef long LOOK = 10_000_000
cdef uint8_t nothing[HEADER]  # what a closed zone's header reads as

AVAILABLE = bool(headgate_robust)
headgate_begin()


def bind(Engine engine, memory):
    """Let an engine's words be those of a mapping."""
    view = memoryview(memory)
    engine.view = view
    engine.words = <word_t*>PyMemoryView_GET_BUFFER(view).buf


def unbind(Engine engine):
    """Let go of the mapping; the header of a closed zone is all zeros."""
    engine.words = <word_t*>nothing
    if engine.view is not None:
        engine.view.release()
        engine.view = None


def new_mutex():
    """The bytes of a robust mutex for several processes that nobody holds."""
    cdef uint8_t room[ROOM]
    cdef int error
    memset(room, 0, ROOM)
    error = headgate_init(<pthread_mutex_t*>room)
    if error:
        raise StoreError(f"this platform has no robust mutex (error {error})")
    return (<char*>room)[:sizeof(pthread_mutex_t)]


cdef class RobustLock:
    """Keeps other processes out, and undoes what a dead one left half done.

    The mutex belongs to a thread. If that dies with it, the kernel tells whoever comes next.
    """
    def __init__(self, Engine engine, int64_t place, waited):
        self.engine = engine
        self.place = place
        self.held = False
        self.waited = waited
        cdef bytes fresh = new_mutex()
        if not headgate_alike(self.mutex(), <pthread_mutex_t*><char*>fresh):
            raise engine.damaged("its lock")

    cdef pthread_mutex_t* mutex(self) noexcept nogil:
        return <pthread_mutex_t*>(self.engine.words + self.place)

    cpdef int enter(self, double patience) except -1:
        """Be the only one; StoreError if that cannot be had in time."""
        cdef int spins, error = EBUSY
        if self.held:  # an interrupt kept this thread from leaving
            error = 0
        else:
            for spins in range(SPINS):
                error = pthread_mutex_trylock(self.mutex())
                if error != EBUSY:
                    break
                headgate_pause()
            if error == EBUSY:
                error = self.wait(patience)
            if error == EOWNERDEAD:
                error = headgate_consistent(self.mutex())
            if error:
                raise StoreError(
                    f"the zone {self.engine.path} cannot be locked (error {error}); stop the "
                    "processes that use it and remove it"
                )
            self.held = True
        self.engine.words[HOLDER] = headgate_thread()
        if self.engine.words[PENDING]:
            self.engine.rollback()
            self.engine.words[RECOVERIES] += 1
        return 0

    cdef bint enter_quickly(self) except -1:
        """Be the only one, if that can be had at once; for those who keep the interpreter."""
        cdef int spins, error = EBUSY
        if self.held or self.engine.view is None:  # on the longer way already, or closed
            return False
        for spins in range(QUICK_SPINS):
            error = pthread_mutex_trylock(self.mutex())
            if error != EBUSY:
                break
            headgate_pause()
        if error == EOWNERDEAD:
            error = headgate_consistent(self.mutex())
        if error:
            return False
        self.engine.words[HOLDER] = headgate_thread()
        if self.engine.words[PENDING]:
            try:
                self.engine.rollback()
            except BaseException:
                self.leave_quickly()
                raise
            self.engine.words[RECOVERIES] += 1
        return True

    cdef void leave_quickly(self) noexcept:
        """Let others in, with nothing left to undo."""
        self.engine.words[HOLDER] = 0
        headgate_fence()
        pthread_mutex_unlock(self.mutex())

    cdef int wait(self, double patience) except -1:
        """Wait without the interpreter; an error number, or StoreError when it was too long."""
        cdef int error
        cdef int64_t spent = 0, look = LOOK, holder
        cdef pthread_mutex_t* mutex = self.mutex()
        while True:
            with nogil:
                error = headgate_lock_for(mutex, SLICE)
            if error != ETIMEDOUT:
                return error
            spent += SLICE
            if spent > patience * 1e9 or spent >= look:
                look += LOOK
                holder = headgate_owner(mutex) or self.engine.get(HOLDER)
                answer = self.waited(self.engine.path, holder, patience, spent > patience * 1e9)
                if answer is not None:
                    raise answer

    cpdef int leave(self) except -1:
        """Let others in; what was not committed is undone. Nothing if this is not the one."""
        if not self.held:
            return 0
        try:
            if self.engine.words[PENDING]:
                self.engine.rollback()
        finally:
            self.engine.words[HOLDER] = 0
            self.held = False
            headgate_fence()
            pthread_mutex_unlock(self.mutex())
        return 0

    def renew(self):
        """Make the mutex anew, where nobody can hold it."""
        data = new_mutex()
        memset(<void*>self.mutex(), 0, ROOM)
        memcpy(<void*>self.mutex(), <char*>data, len(data))

    def forked(self):
        """In a new process nothing is held."""
        self.held = False


cdef class SipHash:
    """Names of keys: SipHash-1-3 under the zone's own key."""
    cdef uint64_t k0, k1

    def __init__(self, int64_t k0, int64_t k1):
        self.k0 = <uint64_t>k0
        self.k1 = <uint64_t>k1

    cpdef int64_t name(self, bytes data):
        """A name for these bytes."""
        return <int64_t>siphash(<const uint8_t*>data, len(data), self.k0, self.k1, 1, 3)
