# Decisions in bulk: as `Decision.__new__` makes them, with nothing written twice.
from cpython.list cimport PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t

from .decision cimport Decision, Refusal
from .record cimport Record

cdef extern from *:
    """
    /* Whether objects of a type are the fields of a Record, all of them, and nothing else. */
    #define HG_IS_RECORD(type, record) hg_is_bare((PyTypeObject *)(type), sizeof(*(record)))
    static inline int hg_is_bare(PyTypeObject *type, size_t size) {
        return (size_t)type->tp_basicsize == size && type->tp_itemsize == 0
            && type->tp_alloc == PyType_GenericAlloc && type->tp_free == PyObject_Free
            && !PyType_IS_GC(type);
    }
    static inline PyObject *hg_bare(PyObject *type) {
        PyObject *made = (PyObject *)PyObject_Malloc(((PyTypeObject *)type)->tp_basicsize);
        return made == NULL ? PyErr_NoMemory() : PyObject_Init(made, (PyTypeObject *)type);
    }
    /* The two references of an object that has none yet. */
    #define HG_BEGIN(record, source) ( \
        (void)((record)->_source = Py_NewRef((PyObject *)(source))), \
        (void)((record)->_seen = Py_NewRef(Py_None)))
    """
    bint HG_IS_RECORD(object kind, Record record) noexcept
    Record hg_bare(object kind)
    void HG_BEGIN(Record record, object source) noexcept


cdef inline bint in_bulk() noexcept:
    """Whether decisions are laid out so that they can be made here; else only Python may."""
    cdef Record record = None
    return HG_IS_RECORD(Decision, record) and HG_IS_RECORD(Refusal, record)


cdef inline int put(
    list found, Py_ssize_t place, object kind, object source,
    int64_t wait, int64_t a, int64_t b, int64_t c, int64_t now, int64_t cost,
) except -1:
    """Make a decision, and put it into an empty place of a list."""
    cdef Record made = hg_bare(kind)
    HG_BEGIN(made, source)
    made._outcome[0], made._outcome[1], made._outcome[2], made._outcome[3] = wait, a, b, c
    made._now = now
    made._cost = cost
    Py_INCREF(made)
    PyList_SET_ITEM(found, place, made)
    return 0
