/*
 * The queuing ring: every message, in order, bounded. One producer, one consumer.
 *
 * Lines and data lie in the consumer's memory; only the producer stores there. Offsets in bytes, words of 64 bits:
 *
 *   line i at 64 * i, i = position % lines
 *     + 0    commit      (position << 1) | 1 of the message, stored behind everything else of it
 *     + 8    length      0 ..= max_size_bytes, in bytes; with checksums its high half is a CRC-32C
 *     + 16   time_ns     source time in nanoseconds of the producer's clock
 *     + 24   payload     if length <= 40: the bytes; else one word, the payload's data position in bytes
 *   data at 64 * lines   payloads longer than 40 bytes, each in one piece and on a multiple of 64; what does not fit before the
 *                        end begins at the start again
 *
 * The credits are one line of the producer's memory; only the consumer stores there:
 *
 *   0        lines       line position behind the last message released
 *   8        data        data position in bytes behind the last payload released
 *
 * Positions run freely and wrap at 2^64. Line positions begin at `start`, data positions at 64 * start. `start` separates
 * sessions and should differ from every earlier one's by more than 2^32.
 *
 * Contract: no call waits; a full ring and an empty one are values. The owner of the credits, the producer's side, calls
 * `busway_ring_prepare_credits` before it tells the consumer where they lie. Called by queuing ports (port.h).
 */
#ifndef BUSWAY_RING_H
#define BUSWAY_RING_H

#include "layout.h"

/* The longest payload in bytes that travels in the line itself. */
#define BUSWAY_RING_INLINE_BYTES ((size_t)40)
#define BUSWAY_RING_LENGTH ((size_t)8)
#define BUSWAY_RING_TIME ((size_t)16)
#define BUSWAY_RING_PAYLOAD ((size_t)24)
#define BUSWAY_RING_CREDIT_LINES ((size_t)0)
#define BUSWAY_RING_CREDIT_DATA ((size_t)8)

/* Memory that the two credit words take: a line, so that nothing else shares it. */
#define BUSWAY_RING_CREDIT_BYTES BUSWAY_LINE_BYTES

/* Bytes of one message that a consumer with checksums looks at in vain before the message counts as corrupt. */
#define BUSWAY_RING_PATIENCE_BYTES ((uint32_t)1 << 30)

/* Where the parts of a ring lie; the same on both sides. Made by `busway_ring_layout_init`. */
struct busway_ring_layout {
    /* Longest message in bytes. */
    size_t max_size_bytes;
    /* Size of the data area in bytes: a power of two, or 0 if every message fits its line. */
    size_t data_bytes;
    /* Bytes that lines and data take. */
    size_t required_bytes;
    /* Number of lines, a power of two from 2 on. */
    uint32_t lines;
    /* Whether messages carry a CRC-32C. */
    bool has_checksum;
};

/* A message that waits in the ring. */
struct busway_message {
    /* In nanoseconds of the producer's clock; not checked. */
    uint64_t time_ns;
    /* Payload in bytes, at most the layout's maximum. */
    size_t len_bytes;
};

/* One producer a ring and session. Private to it. */
struct busway_ring_producer {
    struct busway_ring_layout layout;
    /* The consumer's memory; only written. */
    busway_memory memory;
    /* Own memory; only read. */
    busway_memory credit;
    /* Positions of the next message to stage. */
    uint64_t next_line;
    uint64_t next_data;
    /* Of the first message that is staged and not committed. */
    uint64_t committed;
    /* Positions released up to, as far as known and believed. */
    uint64_t released_lines;
    uint64_t released_data;
    /* Counters since `busway_ring_producer_init`: pushes that found no room, and looks at credits that claim more than was sent. */
    uint32_t full;
    uint32_t impossible_credits;
};

/* One consumer a ring and session. Private to it. */
struct busway_ring_consumer {
    struct busway_ring_layout layout;
    /* Own memory; only read. */
    busway_memory memory;
    /* The producer's memory; only written. */
    busway_memory credit;
    /* Positions of the next message. */
    uint64_t next_line;
    uint64_t next_data;
    /* Credits written last. */
    uint64_t told_lines;
    uint64_t told_data;
    /* How much may be owed before credits are written: messages, and bytes of data. */
    uint64_t batch_lines;
    uint64_t batch_data_bytes;
    /* The front message, if `has_front`: what it is, where in the memory its payload lies, and the data position behind it. */
    struct busway_message front;
    size_t front_at;
    uint64_t front_data_end;
    bool has_front;
    /* With checksums: bytes of the front message looked at in vain. */
    uint32_t doubted_bytes;
};

static inline bool busway_is_power_of_two(size_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

/*
 * Lays out a ring of `lines` (a power of two, 2 ..= 2^31) for messages of up to `max_size_bytes`, with a data area of `data_bytes`:
 * 0 if `max_size_bytes <= 40`, else a power of two of at least twice the longest message rounded up to 64. BUSWAY_INVALID
 * otherwise, or if that is more than the address space.
 */
static inline enum busway_status busway_ring_layout_init(struct busway_ring_layout *layout, uint32_t lines, size_t data_bytes,
                                                         size_t max_size_bytes, bool has_checksum)
{
    const size_t count = lines;
    if (count < 2 || !busway_is_power_of_two(count) || count > SIZE_MAX / 2 / BUSWAY_LINE_BYTES || max_size_bytes > SIZE_MAX / 4
        || max_size_bytes > UINT32_MAX - 64u) {
        return BUSWAY_INVALID;
    }
    size_t least_bytes = max_size_bytes > BUSWAY_RING_INLINE_BYTES ? 2 * busway_round_up(max_size_bytes, BUSWAY_LINE_BYTES) : 0;
    if (data_bytes < least_bytes || data_bytes > SIZE_MAX / 2
        || (data_bytes != 0 && (!busway_is_power_of_two(data_bytes) || data_bytes < BUSWAY_LINE_BYTES))) {
        return BUSWAY_INVALID;
    }
    layout->max_size_bytes = max_size_bytes;
    layout->data_bytes = data_bytes;
    layout->required_bytes = count * BUSWAY_LINE_BYTES + data_bytes;
    layout->lines = lines;
    layout->has_checksum = has_checksum;
    return BUSWAY_OK;
}

/* Member by member: of a whole structure some compilers make a call of `memcpy`. */
static inline void busway_ring_copy_layout(struct busway_ring_layout *to, const struct busway_ring_layout *from)
{
    to->max_size_bytes = from->max_size_bytes;
    to->data_bytes = from->data_bytes;
    to->required_bytes = from->required_bytes;
    to->lines = from->lines;
    to->has_checksum = from->has_checksum;
}

static inline uint64_t busway_ring_data_start(uint64_t start)
{
    return start * BUSWAY_LINE_BYTES;
}

static inline uint64_t busway_ring_commit_word(uint64_t position)
{
    return position << 1 | 1;
}

static inline size_t busway_ring_line(const struct busway_ring_layout *layout, uint64_t position)
{
    return (size_t)((uint32_t)position & (layout->lines - 1)) * BUSWAY_LINE_BYTES;
}

static inline size_t busway_ring_data(const struct busway_ring_layout *layout, uint64_t position)
{
    return layout->lines * BUSWAY_LINE_BYTES + ((size_t)position & (layout->data_bytes - 1));
}

static inline bool busway_ring_fits(const struct busway_ring_layout *layout, busway_memory memory, size_t memory_bytes,
                                    busway_memory credit, size_t credit_bytes)
{
    return busway_is_aligned(memory) && memory_bytes >= layout->required_bytes && busway_is_aligned(credit)
        && credit_bytes >= BUSWAY_RING_CREDIT_BYTES;
}

/* Where a payload of `len_bytes` (more than 40, at most the maximum) begins if `next` is the first free data position. */
static inline uint64_t busway_ring_place(const struct busway_ring_layout *layout, uint64_t next, size_t len_bytes)
{
    const size_t to_end = layout->data_bytes - ((size_t)next & (layout->data_bytes - 1));
    return busway_round_up(len_bytes, BUSWAY_LINE_BYTES) > to_end ? next + to_end : next;
}

/* Says in the credits that nothing of the session that begins at `start` was released. */
static inline void busway_ring_prepare_credits(busway_memory credit, uint64_t start)
{
    busway_publish(credit + BUSWAY_RING_CREDIT_LINES, start);
    busway_publish(credit + BUSWAY_RING_CREDIT_DATA, busway_ring_data_start(start));
    BUSWAY_FENCE();
}

/*
 * A producer of the session that begins at `start`. `memory` is the consumer's, `credit` this side's own. BUSWAY_INVALID if one of
 * them does not fit.
 */
static inline enum busway_status busway_ring_producer_init(struct busway_ring_producer *producer,
                                                           const struct busway_ring_layout *layout, busway_memory memory,
                                                           size_t memory_bytes, busway_memory credit, size_t credit_bytes,
                                                           uint64_t start)
{
    if (!busway_ring_fits(layout, memory, memory_bytes, credit, credit_bytes)) {
        return BUSWAY_INVALID;
    }
    busway_ring_copy_layout(&producer->layout, layout);
    producer->memory = memory;
    producer->credit = credit;
    producer->next_line = start;
    producer->committed = start;
    producer->released_lines = start;
    producer->next_data = busway_ring_data_start(start);
    producer->released_data = producer->next_data;
    producer->full = 0;
    producer->impossible_credits = 0;
    return BUSWAY_OK;
}

/* Believes the credit at `at` if it lies between what is known and `sent`. A torn one never does (layout.h). */
static inline void busway_ring_refresh(struct busway_ring_producer *producer, size_t at, uint64_t *released, uint64_t sent)
{
    uint64_t word = 0;
    /* Partner: the consumer's fence before it publishes credits. So its copies are done before our next stores. */
    if (!busway_load_published(producer->credit + at, &word)) {
        return;
    }
    if (word - *released > sent - *released) {
        producer->impossible_credits++;
        return;
    }
    *released = word;
}

/* Messages that the consumer has not released, as far as its credits tell, staged ones included. */
static inline uint32_t busway_ring_unreleased(struct busway_ring_producer *producer)
{
    busway_ring_refresh(producer, BUSWAY_RING_CREDIT_LINES, &producer->released_lines, producer->committed);
    return (uint32_t)(producer->next_line - producer->released_lines);
}

static inline enum busway_status busway_ring_no_room(struct busway_ring_producer *producer)
{
    producer->full++;
    return BUSWAY_FULL;
}

/* The length of the next message with its checksum; `begin` is its data position, or NULL. */
static inline uint64_t busway_ring_length_word(const struct busway_ring_producer *producer, const void *payload, size_t len_bytes,
                                               uint64_t time_ns, const uint64_t *begin)
{
    if (!producer->layout.has_checksum) {
        return len_bytes;
    }
    uint32_t crc = busway_crc_header(producer->next_line, (uint32_t)len_bytes, time_ns);
    if (begin != NULL) {
        crc = busway_crc_word(crc, *begin, 8);
    }
    return len_bytes | (uint64_t)busway_crc_end(busway_crc_bytes(crc, payload, len_bytes)) << 32;
}

/*
 * Writes a message without publishing it; `busway_ring_commit` publishes all that are staged. BUSWAY_FULL and BUSWAY_TOO_LONG:
 * nothing of it will be seen, and what was staged before stays staged.
 */
static inline enum busway_status busway_ring_stage(struct busway_ring_producer *producer, const void *payload, size_t len_bytes,
                                                   uint64_t time_ns)
{
    const struct busway_ring_layout *layout = &producer->layout;
    if (len_bytes > layout->max_size_bytes) {
        return BUSWAY_TOO_LONG;
    }
    if (producer->next_line - producer->released_lines >= layout->lines && busway_ring_unreleased(producer) >= layout->lines) {
        return busway_ring_no_room(producer);
    }
    busway_memory line = producer->memory + busway_ring_line(layout, producer->next_line);
    uint64_t length;
    if (len_bytes <= BUSWAY_RING_INLINE_BYTES) {
        length = busway_ring_length_word(producer, payload, len_bytes, time_ns, NULL);
        busway_write_bytes(line + BUSWAY_RING_PAYLOAD, payload, len_bytes);
    } else {
        const uint64_t begin = busway_ring_place(layout, producer->next_data, len_bytes);
        const uint64_t end = begin + busway_round_up(len_bytes, BUSWAY_LINE_BYTES);
        if (end - producer->released_data > layout->data_bytes) {
            busway_ring_refresh(producer, BUSWAY_RING_CREDIT_DATA, &producer->released_data, producer->next_data);
            if (end - producer->released_data > layout->data_bytes) {
                return busway_ring_no_room(producer);
            }
        }
        length = busway_ring_length_word(producer, payload, len_bytes, time_ns, &begin);
        busway_write_bytes(producer->memory + busway_ring_data(layout, begin), payload, len_bytes);
        busway_store64(line + BUSWAY_RING_PAYLOAD, begin);
        producer->next_data = end;
    }
    busway_store64(line + BUSWAY_RING_LENGTH, length);
    busway_store64(line + BUSWAY_RING_TIME, time_ns);
    BUSWAY_CACHE_CLEAN(line, BUSWAY_LINE_BYTES);
    producer->next_line++;
    return BUSWAY_OK;
}

/* Publishes all messages staged. */
static inline void busway_ring_commit(struct busway_ring_producer *producer)
{
    while (producer->committed != producer->next_line) {
        /* Line and payload before the commit word: partner is the consumer's load of that. */
        busway_publish(producer->memory + busway_ring_line(&producer->layout, producer->committed),
                       busway_ring_commit_word(producer->committed));
        producer->committed++;
    }
    BUSWAY_FENCE();
}

/* Sends one message, with everything staged before. BUSWAY_FULL, BUSWAY_TOO_LONG: see `busway_ring_stage`. */
static inline enum busway_status busway_ring_push(struct busway_ring_producer *producer, const void *payload, size_t len_bytes,
                                                  uint64_t time_ns)
{
    enum busway_status status = busway_ring_stage(producer, payload, len_bytes, time_ns);
    if (status == BUSWAY_OK) {
        busway_ring_commit(producer);
    }
    return status;
}

/*
 * A consumer of the session that begins at `start`. `memory` is this side's own, `credit` the producer's. BUSWAY_INVALID if one of them
 * does not fit.
 */
static inline enum busway_status busway_ring_consumer_init(struct busway_ring_consumer *consumer,
                                                           const struct busway_ring_layout *layout, busway_memory memory,
                                                           size_t memory_bytes, busway_memory credit, size_t credit_bytes,
                                                           uint64_t start)
{
    if (!busway_ring_fits(layout, memory, memory_bytes, credit, credit_bytes)) {
        return BUSWAY_INVALID;
    }
    busway_ring_copy_layout(&consumer->layout, layout);
    consumer->memory = memory;
    consumer->credit = credit;
    /* The owner has prepared the credits: what an earlier session left of their line in our cache must not go out with the first word. */
    BUSWAY_CACHE_INVALIDATE(credit, BUSWAY_RING_CREDIT_BYTES);
    consumer->next_line = start;
    consumer->told_lines = start;
    consumer->next_data = busway_ring_data_start(start);
    consumer->told_data = consumer->next_data;
    consumer->has_front = false;
    consumer->doubted_bytes = 0;
    consumer->batch_lines = layout->lines < 4 ? 1 : layout->lines / 4;
    /* While the longest message waits for room, twice its length must be free once all are released: its own and what is lost
     * before the end of the area. Credits for the rest may be owed. */
    const size_t longest = 2 * busway_round_up(layout->max_size_bytes, BUSWAY_LINE_BYTES);
    const size_t rest = layout->data_bytes > longest ? layout->data_bytes - longest : 0;
    consumer->batch_data_bytes = rest < layout->data_bytes / 4 ? rest : layout->data_bytes / 4;
    return BUSWAY_OK;
}

/* With checksums, what does not fit may be what has not arrived: BUSWAY_EMPTY while there is patience. */
static inline enum busway_status busway_ring_doubt(struct busway_ring_consumer *consumer, size_t looked_at_bytes)
{
    if (consumer->layout.has_checksum && looked_at_bytes < BUSWAY_RING_PATIENCE_BYTES - consumer->doubted_bytes) {
        consumer->doubted_bytes += (uint32_t)looked_at_bytes;
        return BUSWAY_EMPTY;
    }
    return BUSWAY_CORRUPT;
}

/* Whether the CRC-32C of the front message, which is at `front_at`, is `found`. */
static inline bool busway_ring_is_whole(const struct busway_ring_consumer *consumer, uint32_t found, const uint64_t *begin)
{
    const struct busway_message *front = &consumer->front;
    uint32_t crc = busway_crc_header(consumer->next_line, (uint32_t)front->len_bytes, front->time_ns);
    if (begin != NULL) {
        crc = busway_crc_word(crc, *begin, 8);
    }
    crc = busway_crc_memory(crc, consumer->memory + consumer->front_at, front->len_bytes);
    return busway_crc_end(crc) == found;
}

/*
 * Says in `message` what waits at the front, if anything. BUSWAY_EMPTY if nothing has come. BUSWAY_CORRUPT: only a new session helps.
 * The front stays the same until `busway_ring_release`.
 */
static inline enum busway_status busway_ring_peek(struct busway_ring_consumer *consumer, struct busway_message *message)
{
    const struct busway_ring_layout *layout = &consumer->layout;
    if (consumer->has_front) {
        message->time_ns = consumer->front.time_ns;
        message->len_bytes = consumer->front.len_bytes;
        return BUSWAY_OK;
    }
    const size_t line = busway_ring_line(layout, consumer->next_line);
    uint64_t commit = 0;
    if (!busway_load_published(consumer->memory + line, &commit) || commit != busway_ring_commit_word(consumer->next_line)) {
        return BUSWAY_EMPTY;
    }
    BUSWAY_CACHE_INVALIDATE(consumer->memory + line, BUSWAY_LINE_BYTES);
    const uint64_t word = busway_load_settled(consumer->memory + line + BUSWAY_RING_LENGTH);
    const uint64_t len_bytes = layout->has_checksum ? (uint32_t)word : word;
    if (len_bytes > layout->max_size_bytes) {
        return busway_ring_doubt(consumer, BUSWAY_LINE_BYTES);
    }
    consumer->front.len_bytes = (size_t)len_bytes;
    consumer->front.time_ns = busway_load_settled(consumer->memory + line + BUSWAY_RING_TIME);
    consumer->front_at = line + BUSWAY_RING_PAYLOAD;
    consumer->front_data_end = consumer->next_data;
    uint64_t begin = 0;
    const bool is_long = len_bytes > BUSWAY_RING_INLINE_BYTES;
    if (is_long) {
        /* Where it must be follows from what came before; the line only has to agree. */
        begin = busway_ring_place(layout, consumer->next_data, consumer->front.len_bytes);
        if (busway_load_settled(consumer->memory + line + BUSWAY_RING_PAYLOAD) != begin) {
            return busway_ring_doubt(consumer, BUSWAY_LINE_BYTES);
        }
        consumer->front_at = busway_ring_data(layout, begin);
        consumer->front_data_end = begin + busway_round_up(consumer->front.len_bytes, BUSWAY_LINE_BYTES);
    }
    if (layout->has_checksum && !busway_ring_is_whole(consumer, (uint32_t)(word >> 32), is_long ? &begin : NULL)) {
        return busway_ring_doubt(consumer, BUSWAY_LINE_BYTES + consumer->front.len_bytes);
    }
    consumer->doubted_bytes = 0;
    consumer->has_front = true;
    message->time_ns = consumer->front.time_ns;
    message->len_bytes = consumer->front.len_bytes;
    return BUSWAY_OK;
}

/* Copies `len_bytes` payload bytes of the front message from `offset`, a multiple of 8, on. BUSWAY_INVALID if that is outside, or if no
 * message was peeked. */
static inline enum busway_status busway_ring_copy(const struct busway_ring_consumer *consumer, size_t offset, void *buffer,
                                                  size_t len_bytes)
{
    if (!consumer->has_front || offset % BUSWAY_WORD_BYTES != 0 || offset > consumer->front.len_bytes
        || len_bytes > consumer->front.len_bytes - offset) {
        return BUSWAY_INVALID;
    }
    busway_read_bytes(buffer, consumer->memory + consumer->front_at + offset, len_bytes);
    return BUSWAY_OK;
}

/* Writes back all credits that are owed. */
static inline void busway_ring_flush_credits(struct busway_ring_consumer *consumer)
{
    if (consumer->told_lines == consumer->next_line) {
        return;
    }
    /* Our copies before the credits: partner is the fence behind the producer's load of them. */
    if (consumer->told_data != consumer->next_data) {
        busway_publish(consumer->credit + BUSWAY_RING_CREDIT_DATA, consumer->next_data);
        consumer->told_data = consumer->next_data;
    }
    busway_publish(consumer->credit + BUSWAY_RING_CREDIT_LINES, consumer->next_line);
    consumer->told_lines = consumer->next_line;
    BUSWAY_FENCE();
}

/* Done with the front message; nothing happens if none was peeked. Writes credits back when enough are owed. */
static inline void busway_ring_release(struct busway_ring_consumer *consumer)
{
    if (!consumer->has_front) {
        return;
    }
    consumer->has_front = false;
    consumer->next_line++;
    consumer->next_data = consumer->front_data_end;
    if (consumer->next_line - consumer->told_lines >= consumer->batch_lines
        || consumer->next_data - consumer->told_data > consumer->batch_data_bytes) {
        busway_ring_flush_credits(consumer);
    }
}

/*
 * Takes the front message: peek, copy and release. BUSWAY_EMPTY, BUSWAY_CORRUPT: see `busway_ring_peek`. BUSWAY_BUFFER_TOO_SMALL:
 * `message` holds the length to provide, and the message stays.
 */
static inline enum busway_status busway_ring_pop(struct busway_ring_consumer *consumer, void *buffer, size_t buffer_bytes,
                                                 struct busway_message *message)
{
    enum busway_status status = busway_ring_peek(consumer, message);
    if (status != BUSWAY_OK) {
        return status;
    }
    if (consumer->front.len_bytes > buffer_bytes) {
        return BUSWAY_BUFFER_TOO_SMALL;
    }
    busway_read_bytes(buffer, consumer->memory + consumer->front_at, consumer->front.len_bytes);
    busway_ring_release(consumer);
    return BUSWAY_OK;
}

#endif
