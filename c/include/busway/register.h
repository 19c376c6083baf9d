/*
 * The sampling register: the latest message only. One writer, any number of readers that never store.
 *
 * The register lies in the receiver's memory; the writer writes it from afar. Offsets in bytes, words of 64 bits:
 *
 *   0        latest      sequence of the newest complete message, any value; the writer stores it behind its slot
 *   128      slot 0 .. N-1, each a multiple of 64 bytes; the writer stores all of it:
 *     + 0    sequence    of the message that the slot holds
 *     + 8    length      low half: 0 ..= max_size_bytes, in bytes; high half: CRC-32C, or 0 without checksums
 *     + 16   time_ns     source time in nanoseconds of the writer's clock
 *     + 24   payload     the last word filled up with zeros
 *
 * Message `start + k` goes to slot `k % N`. The writer stores the slot, fences, stores `latest`, and fences again before the next
 * slot. The reader loads `latest`, copies that slot, fences, and loads `latest` again: the copy counts if that advanced by at most
 * N - 2, since the first word of the message that overwrites the slot follows a `latest` that is N - 1 ahead.
 *
 * Contract: no call waits. A read copies at most `max_retries + 1` times. `start` separates sessions and should differ from
 * every earlier one's by more than 2^48; whoever owns the memory calls `busway_register_prepare` before it tells the
 * writer where the register lies. Called by sampling ports (port.h).
 */
#ifndef BUSWAY_REGISTER_H
#define BUSWAY_REGISTER_H

#include "layout.h"

#define BUSWAY_REGISTER_LATEST ((size_t)0)
#define BUSWAY_REGISTER_SLOTS ((size_t)128)
#define BUSWAY_REGISTER_HEADER_BYTES ((size_t)24)
#define BUSWAY_REGISTER_LEAST_SLOTS 3u
#define BUSWAY_REGISTER_MOST_SLOTS 4096u

/* How far `latest` may be ahead of what a reader knows. What is farther is a step back, or another session's. */
#define BUSWAY_REGISTER_MOST_ADVANCE ((uint64_t)1 << 48)

/* Retries of one read unless its reader says otherwise. */
#define BUSWAY_REGISTER_RETRIES 16u

/* Where the parts of a register lie; the same on both sides. Made by `busway_register_layout_init`. */
struct busway_register_layout {
    /* Longest message in bytes. */
    size_t max_size_bytes;
    /* Distance of slots in bytes, a multiple of 64. */
    size_t stride_bytes;
    /* Bytes of memory that the register takes, a multiple of 64. */
    size_t required_bytes;
    /* Number of slots, 3 ..= 4096. */
    uint32_t slots;
    /* Whether messages carry a CRC-32C. */
    bool has_checksum;
};

/* What a reader knows of a message beside its payload. */
struct busway_sample {
    /* `start + 1` for the first message of the session, and one more for each. */
    uint64_t sequence;
    /* In nanoseconds of the writer's clock; not checked. */
    uint64_t time_ns;
    /* Payload in bytes, at most the layout's maximum. */
    size_t len_bytes;
};

/* One writer a register and session. Private to it. */
struct busway_register_writer {
    struct busway_register_layout layout;
    busway_memory memory;
    /* Of the message published last; `start` before the first. */
    uint64_t sequence;
    /* Slot of the next message. */
    uint32_t slot;
};

/* Any number of readers a register. Private to each. */
struct busway_register_reader {
    struct busway_register_layout layout;
    busway_memory memory;
    /* Sequence before the session's first message. */
    uint64_t start;
    /* Sequence accepted last, and its slot; `start` and 0 before the first. */
    uint64_t last;
    uint32_t last_slot;
    /* Attempts of one read beyond the first. */
    uint32_t max_retries;
    /* Counters since `busway_register_reader_init`: attempts that the writer overtook, and attempts that found what no writer leaves. */
    uint32_t retries;
    uint32_t corrupt;
};

/* Lays out a register of `slots` for messages of up to `max_size_bytes`. BUSWAY_INVALID if there is none such. */
static inline enum busway_status busway_register_layout_init(struct busway_register_layout *layout, uint32_t slots,
                                                             size_t max_size_bytes, bool has_checksum)
{
    if (slots < BUSWAY_REGISTER_LEAST_SLOTS || slots > BUSWAY_REGISTER_MOST_SLOTS || max_size_bytes > UINT32_MAX - 128u) {
        return BUSWAY_INVALID;
    }
    size_t stride_bytes = busway_round_up(max_size_bytes + BUSWAY_REGISTER_HEADER_BYTES, BUSWAY_LINE_BYTES);
    if (stride_bytes > (SIZE_MAX - BUSWAY_REGISTER_SLOTS) / slots) {
        return BUSWAY_INVALID;
    }
    layout->max_size_bytes = max_size_bytes;
    layout->stride_bytes = stride_bytes;
    layout->required_bytes = BUSWAY_REGISTER_SLOTS + stride_bytes * slots;
    layout->slots = slots;
    layout->has_checksum = has_checksum;
    return BUSWAY_OK;
}

/* Member by member: of a whole structure some compilers make a call of `memcpy`. */
static inline void busway_register_copy_layout(struct busway_register_layout *to, const struct busway_register_layout *from)
{
    to->max_size_bytes = from->max_size_bytes;
    to->stride_bytes = from->stride_bytes;
    to->required_bytes = from->required_bytes;
    to->slots = from->slots;
    to->has_checksum = from->has_checksum;
}

/* Marks the register as empty for the session that begins at `start`. For the owner of the memory, before the writer knows of it. */
static inline void busway_register_prepare(busway_memory memory, uint64_t start)
{
    busway_publish(memory + BUSWAY_REGISTER_LATEST, start);
    BUSWAY_FENCE();
}

static inline bool busway_register_fits(const struct busway_register_layout *layout, busway_memory memory, size_t memory_bytes)
{
    return busway_is_aligned(memory) && memory_bytes >= layout->required_bytes;
}

static inline busway_memory busway_register_slot(const struct busway_register_layout *layout, busway_memory memory,
                                                 uint32_t slot)
{
    return memory + BUSWAY_REGISTER_SLOTS + (size_t)slot * layout->stride_bytes;
}

/* The slot `advance` behind `slot`, without a division of 64 bits, which small cores have not. */
static inline uint32_t busway_register_slot_ahead(const struct busway_register_layout *layout, uint32_t slot, uint64_t advance)
{
    const uint32_t slots = layout->slots;
    uint32_t ahead;
    if (advance < slots) {
        ahead = (uint32_t)advance;
    } else {
        /* 2^32 modulo slots. The product is below 2^24. */
        const uint32_t high_unit = (UINT32_MAX % slots + 1) % slots;
        ahead = ((uint32_t)(advance >> 32) % slots * high_unit + (uint32_t)advance % slots) % slots;
    }
    slot += ahead;
    return slot >= slots ? slot - slots : slot;
}

/* A writer whose first message gets the sequence `start + 1`, `start` being the readers'. BUSWAY_INVALID if the memory does not fit. */
static inline enum busway_status busway_register_writer_init(struct busway_register_writer *writer,
                                                             const struct busway_register_layout *layout,
                                                             busway_memory memory, size_t memory_bytes, uint64_t start)
{
    if (!busway_register_fits(layout, memory, memory_bytes)) {
        return BUSWAY_INVALID;
    }
    busway_register_copy_layout(&writer->layout, layout);
    writer->memory = memory;
    writer->sequence = start;
    writer->slot = 1;
    return BUSWAY_OK;
}

/* Writes the latest message; `time_ns` is its source time. BUSWAY_TOO_LONG: nothing was written. */
static inline enum busway_status busway_register_write(struct busway_register_writer *writer, const void *payload,
                                                       size_t len_bytes, uint64_t time_ns)
{
    const struct busway_register_layout *layout = &writer->layout;
    if (len_bytes > layout->max_size_bytes) {
        return BUSWAY_TOO_LONG;
    }
    const uint64_t sequence = writer->sequence + 1;
    uint64_t length = len_bytes;
    if (layout->has_checksum) {
        uint32_t crc = busway_crc_header(sequence, (uint32_t)len_bytes, time_ns);
        length |= (uint64_t)busway_crc_end(busway_crc_bytes(crc, payload, len_bytes)) << 32;
    }
    busway_memory slot = busway_register_slot(layout, writer->memory, writer->slot);
    busway_store64(slot, sequence);
    busway_store64(slot + 8, length);
    busway_store64(slot + 16, time_ns);
    BUSWAY_CACHE_CLEAN(slot, BUSWAY_REGISTER_HEADER_BYTES);
    busway_write_bytes(slot + BUSWAY_REGISTER_HEADER_BYTES, payload, len_bytes);
    /* The slot before its index: partner is the reader's first load of `latest`. */
    busway_publish(writer->memory + BUSWAY_REGISTER_LATEST, sequence);
    /* The index before the next slot: partner is the reader's fence before its second load of `latest`. */
    BUSWAY_FENCE();
    writer->sequence = sequence;
    writer->slot = busway_register_slot_ahead(layout, writer->slot, 1);
    return BUSWAY_OK;
}

/* A reader of the session that begins at `start`. BUSWAY_INVALID if the memory does not fit. */
static inline enum busway_status busway_register_reader_init(struct busway_register_reader *reader,
                                                             const struct busway_register_layout *layout,
                                                             busway_memory memory, size_t memory_bytes, uint64_t start)
{
    if (!busway_register_fits(layout, memory, memory_bytes)) {
        return BUSWAY_INVALID;
    }
    busway_register_copy_layout(&reader->layout, layout);
    reader->memory = memory;
    reader->start = start;
    reader->last = start;
    reader->last_slot = 0;
    reader->max_retries = BUSWAY_REGISTER_RETRIES;
    reader->retries = 0;
    reader->corrupt = 0;
    return BUSWAY_OK;
}

/* Whether there is a message that this reader has not accepted. Copies nothing. */
static inline bool busway_register_has_news(const struct busway_register_reader *reader)
{
    uint64_t latest = 0;
    return busway_load_published(reader->memory + BUSWAY_REGISTER_LATEST, &latest) && latest != reader->last
        && latest - reader->last <= BUSWAY_REGISTER_MOST_ADVANCE;
}

/* One attempt of a read. BUSWAY_CONTENDED and BUSWAY_CORRUPT ask for another. */
static inline enum busway_status busway_register_attempt(struct busway_register_reader *reader, void *buffer,
                                                         size_t buffer_bytes, struct busway_sample *sample)
{
    const struct busway_register_layout *layout = &reader->layout;
    busway_memory latest_at = reader->memory + BUSWAY_REGISTER_LATEST;
    uint64_t latest = 0;
    if (!busway_load_published(latest_at, &latest)) {
        return BUSWAY_CONTENDED;
    }
    const uint64_t advance = latest - reader->last;
    if (latest == reader->start && reader->last == reader->start) {
        return BUSWAY_EMPTY;
    }
    if (advance > BUSWAY_REGISTER_MOST_ADVANCE) {
        /* Before its first message a reader may find what an earlier session has left. */
        return reader->last == reader->start ? BUSWAY_EMPTY : BUSWAY_CORRUPT;
    }
    const uint32_t slot = busway_register_slot_ahead(layout, reader->last_slot, advance);
    busway_memory from = busway_register_slot(layout, reader->memory, slot);
    BUSWAY_CACHE_INVALIDATE(from, BUSWAY_REGISTER_HEADER_BYTES);
    const uint64_t found = busway_load_settled(from);
    const uint64_t length = busway_load_settled(from + 8);
    const uint64_t time_ns = busway_load_settled(from + 16);
    const size_t len_bytes = (uint32_t)length;
    bool is_wrong = found != latest || len_bytes > layout->max_size_bytes;
    const bool fits = len_bytes <= buffer_bytes;
    if (!is_wrong && fits) {
        busway_read_bytes(buffer, from + BUSWAY_REGISTER_HEADER_BYTES, len_bytes);
    }
    /* The copy before the load: partner is the writer's fence between `latest` and the next slot. */
    BUSWAY_FENCE();
    uint64_t now = 0;
    if (!busway_load_published(latest_at, &now) || now - latest > layout->slots - 2) {
        return BUSWAY_CONTENDED;
    }
    if (is_wrong) {
        return BUSWAY_CORRUPT;
    }
    sample->sequence = latest;
    sample->time_ns = time_ns;
    sample->len_bytes = len_bytes;
    if (!fits) {
        return BUSWAY_BUFFER_TOO_SMALL;
    }
    if (layout->has_checksum) {
        uint32_t crc = busway_crc_header(latest, (uint32_t)len_bytes, time_ns);
        if (busway_crc_end(busway_crc_bytes(crc, buffer, len_bytes)) != (uint32_t)(length >> 32)) {
            return BUSWAY_CORRUPT;
        }
    }
    reader->last = latest;
    reader->last_slot = slot;
    return advance == 0 ? BUSWAY_UNCHANGED : BUSWAY_OK;
}

/*
 * Copies the latest message into `buffer` and says in `sample` what it is. BUSWAY_OK for a new one, BUSWAY_UNCHANGED for the
 * same again, BUSWAY_EMPTY before the first. With BUSWAY_BUFFER_TOO_SMALL `sample` holds the length to provide; with
 * BUSWAY_CONTENDED and BUSWAY_CORRUPT what `buffer` holds is no message. What does not fit together is looked at again before it
 * counts as corrupt, since a 32-bit writer may be between two halves.
 */
static inline enum busway_status busway_register_read(struct busway_register_reader *reader, void *buffer, size_t buffer_bytes,
                                                      struct busway_sample *sample)
{
    enum busway_status status = BUSWAY_CONTENDED;
    for (uint32_t attempt = 0; attempt <= reader->max_retries; attempt++) {
        status = busway_register_attempt(reader, buffer, buffer_bytes, sample);
        if (status == BUSWAY_CONTENDED) {
            reader->retries++;
        } else if (status == BUSWAY_CORRUPT) {
            reader->corrupt++;
        } else {
            break;
        }
    }
    return status;
}

#endif
