# Keys by a 64-bit keyed hash: nobody outside can make two keys meet.
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define hg_little(word) __builtin_bswap64(word)
    #else
    #define hg_little(word) (word)
    #endif
    """
    uint64_t hg_little(uint64_t word) nogil


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void mix(uint64_t* v) noexcept nogil:
    """One round of SipHash."""
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] = rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] = rotated(v[2], 32)


cdef inline uint64_t word_at(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    """Up to eight bytes as a number, the first one lowest."""
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    for i in range(length):
        word |= <uint64_t>data[i] << (8 * i)
    return word


cdef inline void sip_begin(uint64_t* v, uint64_t k0, uint64_t k1) noexcept nogil:
    """The state of SipHash before the first word."""
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573


cdef inline void sip_word(uint64_t* v, uint64_t word, int rounds) noexcept nogil:
    """Take in a word."""
    cdef int r
    v[3] ^= word
    for r in range(rounds):
        mix(v)
    v[0] ^= word


cdef inline uint64_t sip_end(
    uint64_t* v, const uint8_t* data, Py_ssize_t length, Py_ssize_t total, int rounds, int last
) noexcept nogil:
    """Take in what is left of the data, of which there were so many bytes, and finish."""
    cdef Py_ssize_t i, whole = length & ~7
    cdef uint64_t word
    cdef int r
    for i in range(0, whole, 8):
        memcpy(&word, data + i, 8)
        sip_word(v, hg_little(word), rounds)
    word = word_at(data + whole, length - whole) | (<uint64_t>total & 0xFF) << 56
    sip_word(v, word, rounds)
    v[2] ^= 0xFF
    for r in range(last):
        mix(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline uint64_t siphash(
    const uint8_t* data, Py_ssize_t length, uint64_t k0, uint64_t k1, int rounds, int last
) noexcept nogil:
    """SipHash with so many rounds for each word, and so many at the end."""
    cdef uint64_t v[4]
    sip_begin(v, k0, k1)
    return sip_end(v, data, length, length, rounds, last)
