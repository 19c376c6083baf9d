/*
 * The cache hooks of layout.h for a core whose cache is not coherent with the memory that the other side sees, as hostile as such a core may be.
 *
 * Contract: whoever includes this, before any header, defines INCOHERENT_LINE_BYTES (a power of two from 8 on) and MEMORY_OF(at), the memory behind
 * an address of the cache. The core's loads and stores reach its cache alone. A line comes in when it is invalidated, its first word last. A line
 * that is cleaned goes out at the next fence, the last one cleaned first. Nothing else moves, and a line takes all its words with it. So a missing
 * hook shows, and a line that both sides write; a missing fence only to who looks while lines go out.
 */
#include <stddef.h>
#include <stdint.h>

/* Staged messages, each with three calls, have no fence between. */
#define INCOHERENT_MOST_CLEANED 64u

struct incoherent_lines {
    volatile unsigned char *at;
    size_t words;
};

/* Of this thread: threads are cores. */
static __thread struct incoherent_lines incoherent_cleaned[INCOHERENT_MOST_CLEANED];
static __thread unsigned incoherent_cleaned_count;

/* All lines that have one of the `bytes` bytes at `at`. */
static inline struct incoherent_lines incoherent_lines_of(volatile unsigned char *at, size_t bytes)
{
    const size_t before = (uintptr_t)at % INCOHERENT_LINE_BYTES;
    const size_t lines = bytes == 0 ? 0 : (before + bytes + INCOHERENT_LINE_BYTES - 1) / INCOHERENT_LINE_BYTES;
    struct incoherent_lines found = {at - before, lines * INCOHERENT_LINE_BYTES / 8};
    return found;
}

static inline void incoherent_clean(volatile unsigned char *at, size_t bytes)
{
    if (incoherent_cleaned_count == INCOHERENT_MOST_CLEANED) {
        __builtin_trap();
    }
    incoherent_cleaned[incoherent_cleaned_count++] = incoherent_lines_of(at, bytes);
}

static inline void incoherent_invalidate(volatile unsigned char *at, size_t bytes)
{
    const struct incoherent_lines lines = incoherent_lines_of(at, bytes);
    volatile uint64_t *cache = (volatile uint64_t *)(volatile void *)lines.at;
    volatile uint64_t *memory = (volatile uint64_t *)(volatile void *)MEMORY_OF(lines.at);
    for (size_t word = lines.words; word-- > 0;) {
        cache[word] = memory[word];
    }
}

static inline void incoherent_fence(void)
{
    __sync_synchronize();
    while (incoherent_cleaned_count > 0) {
        const struct incoherent_lines lines = incoherent_cleaned[--incoherent_cleaned_count];
        volatile uint64_t *cache = (volatile uint64_t *)(volatile void *)lines.at;
        volatile uint64_t *memory = (volatile uint64_t *)(volatile void *)MEMORY_OF(lines.at);
        for (size_t word = 0; word < lines.words; word++) {
            memory[word] = cache[word];
        }
    }
    __sync_synchronize();
}

#define BUSWAY_FENCE() incoherent_fence()
#define BUSWAY_CACHE_CLEAN(at, bytes) incoherent_clean(at, bytes)
#define BUSWAY_CACHE_INVALIDATE(at, bytes) incoherent_invalidate(at, bytes)
