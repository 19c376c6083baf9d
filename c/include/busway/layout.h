/*
 * Words and bytes in memory that another host writes or reads.
 *
 * Contract: freestanding C99, little-endian, no libc, no allocation, no atomic read-modify-write. Every shared word has one
 * writer. Shared memory is reached only through the functions here: each load and each store is volatile and happens once, and
 * nothing is read again behind its check. What the other side wrote may be wrong; it never makes an access outside the memory
 * that was given. Called by register.h and ring.h; ports use port.h.
 *
 * 64-bit words on 32-bit cores: the layout's words are 64 bits wide, and a 32-bit core moves them in two halves. Which words
 * may be seen in parts, and what follows:
 *
 *   commit word of a ring    compared with the one value that is awaited. Both halves are stored behind the fence that follows
 *                            the payload, and the line changes only once until it is released: whoever finds both halves
 *                            as awaited, in whatever order, finds them behind that fence. Never mistaken.
 *   credits of a ring        grow by at most the ring's size between two looks, which is below 2^32 on such a core. A
 *                            mixture of old and new halves is off by 2^32, so it claims more than was sent or takes back
 *                            what was given. Both are impossible, so both sides ignore it and look again at the next call.
 *   latest of a register     grows by one. Its high half changes once in 2^32 messages; the high half is stored first then. A
 *                            reader between the two stores sees a message 2^32 ahead, whose slot holds another sequence: it is
 *                            noticed. The readers here look again; the reader in Rust does so if it has patience
 *                            (`with_patience_bytes`), and else reports the register as corrupt for that one read.
 *   all other words          are read only between a published word and the check that it still counts.
 *
 * A reader here takes the high half, the low half, and the high half again, and begins anew if that changed.
 *
 * The environment may define, before it includes any header:
 *
 *   BUSWAY_FENCE()                   orders all earlier loads, stores and calls of the two below before all later ones, as the other side sees
 *                                    them. Default: the compiler's barrier and the processor's for ordinary coherent memory. A
 *                                    write-combining or device mapping may need more.
 *   BUSWAY_CACHE_CLEAN(at, bytes)       writes cached bytes back to memory. Default: nothing.
 *   BUSWAY_CACHE_INVALIDATE(at, bytes)  forgets cached bytes, so that the next load comes from memory. Default: nothing. Both are for
 *                                    memory that is cached here and not coherent with the other side. They take whole lines, those of
 *                                    which any byte is named, and may be given 0 bytes. No line of at most 64 bytes has two
 *                                    writers, so neither loses another's bytes; the window must begin on a multiple of the line.
 *   BUSWAY_WORD_BITS                 32 or 64: the widest access that happens in one piece. Default: by the size of a pointer.
 */
#ifndef BUSWAY_LAYOUT_H
#define BUSWAY_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "busway: words in shared memory are little-endian, and this target is not"
#endif
#elif !defined(BUSWAY_LITTLE_ENDIAN)
#error "busway: the compiler does not tell its byte order; define BUSWAY_LITTLE_ENDIAN if it is little-endian"
#endif

#ifndef BUSWAY_WORD_BITS
#if UINTPTR_MAX > 0xffffffffu
#define BUSWAY_WORD_BITS 64
#else
#define BUSWAY_WORD_BITS 32
#endif
#endif

#ifndef BUSWAY_FENCE
#if defined(__x86_64__) || defined(__i386__)
/* x86 keeps loads in order, stores in order, and no store passes an earlier load; the protocols need no more. */
#define BUSWAY_FENCE() __asm__ __volatile__("" ::: "memory")
#elif defined(__aarch64__) || defined(__arm__)
/* The full system: the other side is no core of this cluster. */
#define BUSWAY_FENCE() __asm__ __volatile__("dmb sy" ::: "memory")
#elif defined(__riscv)
#define BUSWAY_FENCE() __asm__ __volatile__("fence iorw, iorw" ::: "memory")
#elif defined(__GNUC__)
#define BUSWAY_FENCE() __sync_synchronize()
#else
#error "busway: no fence is known for this compiler; define BUSWAY_FENCE()"
#endif
#endif

#ifndef BUSWAY_CACHE_CLEAN
#define BUSWAY_CACHE_CLEAN(at, bytes) ((void)0)
#endif
#ifndef BUSWAY_CACHE_INVALIDATE
#define BUSWAY_CACHE_INVALIDATE(at, bytes) ((void)0)
#endif

/* Bytes of a cache line: the unit of the layouts. */
#define BUSWAY_LINE_BYTES ((size_t)64)

/* Bytes of a word of the layouts. */
#define BUSWAY_WORD_BYTES ((size_t)8)

/* How a call ended. */
enum busway_status {
    /* Done; of a read: a message that this reader had not seen. */
    BUSWAY_OK = 0,
    /* The same message as last time, copied again. */
    BUSWAY_UNCHANGED,
    /* There is no message. */
    BUSWAY_EMPTY,
    /* The other side was faster than every retry. What the buffer holds is no message. */
    BUSWAY_CONTENDED,
    /* The ring is full until its consumer releases messages. */
    BUSWAY_FULL,
    /* The message is longer than the layout takes. */
    BUSWAY_TOO_LONG,
    /* The message is longer than the caller's buffer. It stays where it is. */
    BUSWAY_BUFFER_TOO_SMALL,
    /* The other side broke the protocol. */
    BUSWAY_CORRUPT,
    /* Numbers that make no layout, memory that is too small or not on a multiple of 8, or a call out of turn. */
    BUSWAY_INVALID,
    /* The other side is not there (port.h). */
    BUSWAY_DOWN
};

/* Shared memory: only the functions of this header follow the pointer. */
typedef volatile unsigned char *busway_memory;

#if BUSWAY_WORD_BITS == 64
typedef uint64_t busway_word;
#else
typedef uint32_t busway_word;
#endif

/* `bytes` rounded up to a multiple of `unit`, a power of two; 0 if that overflows (or `bytes` is 0). */
static inline size_t busway_round_up(size_t bytes, size_t unit)
{
    return (bytes + (unit - 1)) & ~(unit - 1);
}

static inline bool busway_is_aligned(busway_memory at)
{
    return at != NULL && ((uintptr_t)at & (BUSWAY_WORD_BYTES - 1)) == 0;
}

static inline busway_word busway_load_word(busway_memory at)
{
    return *(volatile busway_word *)(volatile void *)at;
}

static inline void busway_store_word(busway_memory at, busway_word word)
{
    *(volatile busway_word *)(volatile void *)at = word;
}

/* A 64-bit word that does not change now, or whose change is noticed by other means. */
static inline uint64_t busway_load_settled(busway_memory at)
{
#if BUSWAY_WORD_BITS == 64
    return busway_load_word(at);
#else
    uint64_t high = busway_load_word(at + 4);
    return high << 32 | busway_load_word(at);
#endif
}

/* A 64-bit word that others publish, and then a fence: what they wrote before it is visible to all later loads. Partner: the
 * fence before their store. `false` if its high half changed at each of four looks, which no counter does. */
static inline bool busway_load_published(busway_memory at, uint64_t *word)
{
    BUSWAY_CACHE_INVALIDATE(at, BUSWAY_WORD_BYTES);
#if BUSWAY_WORD_BITS == 64
    *word = busway_load_word(at);
    BUSWAY_FENCE();
    return true;
#else
    for (unsigned look = 0; look < 4; look++) {
        uint32_t high = busway_load_word(at + 4);
        BUSWAY_FENCE();
        uint32_t low = busway_load_word(at);
        BUSWAY_FENCE();
        if (busway_load_word(at + 4) == high) {
            BUSWAY_FENCE();
            *word = (uint64_t)high << 32 | low;
            return true;
        }
        BUSWAY_CACHE_INVALIDATE(at, BUSWAY_WORD_BYTES);
    }
    return false;
#endif
}

/* A 64-bit word, the high half first where it takes two stores. Nothing is ordered. */
static inline void busway_store64(busway_memory at, uint64_t word)
{
#if BUSWAY_WORD_BITS == 64
    busway_store_word(at, word);
#else
    busway_store_word(at + 4, (uint32_t)(word >> 32));
    /* The halves in this order, which `latest` needs. */
    BUSWAY_FENCE();
    busway_store_word(at, (uint32_t)word);
#endif
}

/* A fence, and then the word. Partner: the fence in `busway_load_published` of the other side. */
static inline void busway_publish(busway_memory at, uint64_t word)
{
    BUSWAY_FENCE();
    busway_store64(at, word);
    BUSWAY_CACHE_CLEAN(at, BUSWAY_WORD_BYTES);
}

/* Places `bytes` bytes at `to`, a multiple of 8, and zeros up to the next multiple of 8. */
static inline void busway_write_bytes(busway_memory to, const void *from, size_t bytes)
{
    const unsigned char *source = (const unsigned char *)from;
    const size_t whole = bytes & ~(sizeof(busway_word) - 1);
    size_t at = 0;
    for (; at < whole; at += sizeof(busway_word)) {
        busway_word word = 0;
        for (unsigned i = 0; i < sizeof(busway_word); i++) {
            word |= (busway_word)source[at + i] << (8 * i);
        }
        busway_store_word(to + at, word);
    }
    for (; (at & (BUSWAY_WORD_BYTES - 1)) != 0 || at < bytes; at += sizeof(busway_word)) {
        busway_word word = 0;
        for (unsigned i = 0; i < sizeof(busway_word) && at + i < bytes; i++) {
            word |= (busway_word)source[at + i] << (8 * i);
        }
        busway_store_word(to + at, word);
    }
    BUSWAY_CACHE_CLEAN(to, at);
}

/* Copies `bytes` bytes from `from`, a multiple of 8. They may be a mixture of old and new. */
static inline void busway_read_bytes(void *to, busway_memory from, size_t bytes)
{
    unsigned char *target = (unsigned char *)to;
    BUSWAY_CACHE_INVALIDATE(from, bytes);
    for (size_t at = 0; at < bytes; at += sizeof(busway_word)) {
        busway_word word = busway_load_word(from + at);
        if (bytes - at >= sizeof(busway_word)) {
            for (unsigned i = 0; i < sizeof(busway_word); i++) {
                target[at + i] = (unsigned char)(word >> (8 * i));
            }
        } else {
            for (size_t i = at; i < bytes; i++) {
                target[i] = (unsigned char)word;
                word >>= 8;
            }
        }
    }
}

/* The CRC-32C (RFC 3720, section 12.1) of messages, where a layout has checksums. `crc` is what an earlier call returned. */
#define BUSWAY_CRC_BEGIN 0xffffffffu
static inline uint32_t busway_crc_byte(uint32_t crc, uint32_t byte)
{
    /* The remainders of the 16 half bytes: 64 bytes of table instead of the usual 1024. */
    static const uint32_t table[16] = {
        0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
        0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u, 0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u,
    };
    crc ^= byte & 0xffu;
    crc = (crc >> 4) ^ table[crc & 15u];
    return (crc >> 4) ^ table[crc & 15u];
}

static inline uint32_t busway_crc_word(uint32_t crc, uint64_t word, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        crc = busway_crc_byte(crc, (uint32_t)(word >> (8 * i)));
    }
    return crc;
}

static inline uint32_t busway_crc_bytes(uint32_t crc, const void *from, size_t bytes)
{
    const unsigned char *source = (const unsigned char *)from;
    for (size_t i = 0; i < bytes; i++) {
        crc = busway_crc_byte(crc, source[i]);
    }
    return crc;
}

/* Adds bytes of shared memory at `from`, a multiple of 8, in whatever state they are. */
static inline uint32_t busway_crc_memory(uint32_t crc, busway_memory from, size_t bytes)
{
    BUSWAY_CACHE_INVALIDATE(from, bytes);
    for (size_t at = 0; at < bytes; at += BUSWAY_WORD_BYTES) {
        size_t rest = bytes - at;
        unsigned count = rest < BUSWAY_WORD_BYTES ? (unsigned)rest : (unsigned)BUSWAY_WORD_BYTES;
        crc = busway_crc_word(crc, busway_load_settled(from + at), count);
    }
    return crc;
}

/* The digest of a message's number, length and time, to which its payload is then added. */
static inline uint32_t busway_crc_header(uint64_t number, uint32_t len_bytes, uint64_t time_ns)
{
    uint32_t crc = busway_crc_word(BUSWAY_CRC_BEGIN, number, 8);
    crc = busway_crc_word(crc, len_bytes, 4);
    return busway_crc_word(crc, time_ns, 8);
}

static inline uint32_t busway_crc_end(uint32_t crc)
{
    return ~crc;
}

#endif
