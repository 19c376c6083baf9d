/*
 * Sampling and queuing ports for programs without an operating system or with a small one: FreeRTOS, Zephyr, VxWorks, bare metal.
 *
 * Contract: no call waits, allocates or starts anything. Each port is a structure that its caller provides and that one task at a time
 * uses. Time is what the environment's clock says. Where a channel lies follows from the system file that the Linux hosts have:
 * `busway check SYSTEM --places HOST` writes a header with a `busway_place` for each.
 *
 * Sampling channels are those that Linux ports use over a window (docs/decisions/007-ports-across-hosts.md): the source writes the
 * register in the other host's memory, and no gateway takes part. The register's first line has three words behind `latest`, all
 * written by the source with every message:
 *
 *   8    session    not 0; a source that starts anew takes another, and its sequences count from it
 *   16   key        digest of the channel's description: other memory is not taken for this channel
 *   24   boot       of the source's kernel; 0 here, which no Linux kernel has: clocks are compared as the system file says
 *
 * Queuing channels are a ring, and a line in each direction with which the ends find each other. Each end writes its own line:
 *
 *   0    session    of the end that writes, not 0; a new one voids all of the old
 *   8    echo       the session of the other end as this one last saw it
 *   16   key        as above
 *   24   ping       a number that the other end shall repeat; this side never asks
 *   32   pong       the last ping that this end has seen: each call of the port repeats it, and so shows that the core runs
 *
 *   The source's line is followed by lines and data of the ring, the destination's by the credits. A ring begins at a position that
 *   follows from both sessions, so what an earlier pair left behind is never taken for a message. The source sends once the destination
 *   echoes it. When the source starts anew, the destination first takes what the former one left in the ring. Messages that lie there when
 *   the destination starts anew are lost, and the source counts them.
 */
#ifndef BUSWAY_PORT_H
#define BUSWAY_PORT_H

#include "register.h"
#include "ring.h"

#define BUSWAY_SESSION ((size_t)8)
#define BUSWAY_KEY ((size_t)16)
#define BUSWAY_BOOT ((size_t)24)
#define BUSWAY_LINE_SESSION ((size_t)0)
#define BUSWAY_LINE_ECHO ((size_t)8)
#define BUSWAY_LINE_KEY ((size_t)16)
#define BUSWAY_LINE_PING ((size_t)24)
#define BUSWAY_LINE_PONG ((size_t)32)

/* What a port needs of the system that it runs on. */
struct busway_environment {
    /* Nanoseconds of the clock in which source times are given: with `clock = "ptp"` in the system file, TAI. */
    uint64_t (*now_ns)(void *context);
    void *context;
};

/* Where a channel lies, as the system file says. Offsets are from the start of the memory that the window's file stands for. The members stay in this
 * order: what `busway check --places` writes names none, so that C++ takes it, too. */
struct busway_place {
    /* Digest of the channel's description, not 0. */
    uint64_t key;
    /* What the source writes: the register, or the line and the ring. In bytes, a multiple of 64. */
    size_t source_at;
    /* What the destination of a queuing channel writes: the line and the credits. In bytes, a multiple of 64. */
    size_t destination_at;
    /* Longest message in bytes. */
    size_t max_size_bytes;
    /* Data area of a queuing channel's ring in bytes. */
    size_t data_bytes;
    /* Slots of a sampling channel, or lines of a queuing channel's ring. */
    uint32_t count;
};

/*
 * The session behind `previous`: never 0, and its low half small, so that sequences carry into the high half only after more than
 * 2^32 - 2^16 messages. A core that was reset alone takes the one behind that which it finds in the memory; a core with a source of
 * randomness passes a random number.
 */
static inline uint64_t busway_session_behind(uint64_t previous)
{
    uint32_t high = (uint32_t)(previous >> 32) + 0x9e3779b9u;
    uint32_t low = ((uint32_t)previous + 0x79b9u) & 0xffffu;
    return (uint64_t)(high != 0 ? high : 1) << 32 | (low != 0 ? low : 1);
}

/* The place of a sampling channel as memory; BUSWAY_INVALID if it is impossible. */
static inline enum busway_status busway_sampling_place(const struct busway_place *place, busway_memory window, size_t window_bytes,
                                                       struct busway_register_layout *layout)
{
    if (!busway_is_aligned(window) || place->source_at > window_bytes || place->source_at % BUSWAY_LINE_BYTES != 0) {
        return BUSWAY_INVALID;
    }
    return busway_register_layout_init(layout, place->count, place->max_size_bytes, false);
}

/* The source end of a sampling channel. */
struct busway_sampling_source {
    struct busway_register_writer writer;
    const struct busway_environment *environment;
    uint64_t session;
    uint64_t key;
    bool is_announced;
};

/* Writes the words beside `latest`, before the fence that precedes `latest`. */
static inline void busway_sampling_head(const struct busway_sampling_source *source)
{
    busway_memory head = source->writer.memory;
    busway_store64(head + BUSWAY_SESSION, source->session);
    busway_store64(head + BUSWAY_KEY, source->key);
    busway_store64(head + BUSWAY_BOOT, 0);
    BUSWAY_CACHE_CLEAN(head, BUSWAY_LINE_BYTES);
}

/*
 * The source end of the channel at `place` in the `window_bytes` bytes at `window`. `entropy`: a number that is random or counts starts; 0
 * where there is none, and then the session is the one behind that which lies in the memory. BUSWAY_INVALID if the place is impossible.
 */
static inline enum busway_status busway_sampling_source_init(struct busway_sampling_source *source,
                                                             const struct busway_environment *environment,
                                                             const struct busway_place *place, busway_memory window,
                                                             size_t window_bytes, uint64_t entropy)
{
    struct busway_register_layout layout;
    if (busway_sampling_place(place, window, window_bytes, &layout) != BUSWAY_OK
        || busway_register_writer_init(&source->writer, &layout, window + place->source_at, window_bytes - place->source_at, 0)
               != BUSWAY_OK) {
        return BUSWAY_INVALID;
    }
    source->environment = environment;
    source->key = place->key;
    BUSWAY_CACHE_INVALIDATE(source->writer.memory, BUSWAY_LINE_BYTES);
    source->session
        = busway_session_behind(entropy != 0 ? entropy : busway_load_settled(source->writer.memory + BUSWAY_SESSION));
    source->writer.sequence = source->session;
    source->is_announced = false;
    return BUSWAY_OK;
}

/* Writes the latest message. BUSWAY_TOO_LONG: nothing was written. */
static inline enum busway_status busway_sampling_write(struct busway_sampling_source *source, const void *message,
                                                       size_t len_bytes)
{
    if (len_bytes > source->writer.layout.max_size_bytes) {
        return BUSWAY_TOO_LONG;
    }
    busway_sampling_head(source);
    if (!source->is_announced) {
        /* Whoever reads the session before sees `latest` jump before a slot of its changes. */
        busway_register_prepare(source->writer.memory, source->session);
        source->is_announced = true;
    }
    return busway_register_write(&source->writer, message, len_bytes, source->environment->now_ns(source->environment->context));
}

/* The destination end of a sampling channel. */
struct busway_sampling_destination {
    struct busway_register_reader reader;
    const struct busway_environment *environment;
    uint64_t key;
    /* How old a message may be and still count as valid, in nanoseconds. */
    uint64_t refresh_period_ns;
};

/* The destination end of the channel at `place`. BUSWAY_INVALID if the place is impossible. */
static inline enum busway_status busway_sampling_destination_init(struct busway_sampling_destination *destination,
                                                                  const struct busway_environment *environment,
                                                                  const struct busway_place *place, busway_memory window,
                                                                  size_t window_bytes, uint64_t refresh_period_ns)
{
    struct busway_register_layout layout;
    if (busway_sampling_place(place, window, window_bytes, &layout) != BUSWAY_OK
        || busway_register_reader_init(&destination->reader, &layout, window + place->source_at,
                                       window_bytes - place->source_at, 0)
               != BUSWAY_OK) {
        return BUSWAY_INVALID;
    }
    destination->environment = environment;
    destination->key = place->key;
    destination->refresh_period_ns = refresh_period_ns;
    return BUSWAY_OK;
}

/*
 * Copies the latest message into `buffer` (best as long as the longest message), says in `sample` what it is and in `is_valid` whether it is
 * no older than the refresh period. BUSWAY_OK for a new message, BUSWAY_UNCHANGED for the same again; with BUSWAY_EMPTY,
 * BUSWAY_CONTENDED, BUSWAY_CORRUPT and BUSWAY_BUFFER_TOO_SMALL there is none in `buffer`. BUSWAY_CORRUPT may pass: the source may
 * have started anew.
 */
static inline enum busway_status busway_sampling_read(struct busway_sampling_destination *destination, void *buffer,
                                                      size_t buffer_bytes, struct busway_sample *sample, bool *is_valid)
{
    struct busway_register_reader *reader = &destination->reader;
    uint64_t key = 0;
    uint64_t session = 0;
    *is_valid = false;
    if (!busway_load_published(reader->memory + BUSWAY_KEY, &key) || key != destination->key
        || !busway_load_published(reader->memory + BUSWAY_SESSION, &session) || session == 0) {
        return BUSWAY_EMPTY;
    }
    if (session != reader->start) {
        reader->start = session;
        reader->last = session;
        reader->last_slot = 0;
    }
    enum busway_status status = busway_register_read(reader, buffer, buffer_bytes, sample);
    if (status == BUSWAY_OK || status == BUSWAY_UNCHANGED) {
        const uint64_t now_ns = destination->environment->now_ns(destination->environment->context);
        /* A stamp of the future, by clocks that differ a little, is young. One that is far off is not. Times are signed, as those of
         * ports on Linux; how far they are apart is not, and fits 64 bits whatever they are. */
        const uint64_t apart_ns
            = (int64_t)now_ns >= (int64_t)sample->time_ns ? now_ns - sample->time_ns : sample->time_ns - now_ns;
        *is_valid = apart_ns <= destination->refresh_period_ns;
    }
    return status;
}

/* What both ends of a queuing channel do to find each other. */
struct busway_meeting {
    /* Own line, written; the other end's, read. */
    busway_memory own;
    busway_memory other;
    uint64_t key;
    uint64_t session;
    /* The other end's session as it was answered; 0 for none. */
    uint64_t answered;
    /* The ping that was repeated last. */
    uint64_t pong;
};

static inline enum busway_status busway_meeting_init(struct busway_meeting *meeting, const struct busway_place *place,
                                                     busway_memory own, busway_memory other, uint64_t entropy)
{
    meeting->own = own;
    meeting->other = other;
    meeting->key = place->key;
    BUSWAY_CACHE_INVALIDATE(own, BUSWAY_LINE_BYTES);
    meeting->session = busway_session_behind(entropy != 0 ? entropy : busway_load_settled(own + BUSWAY_LINE_SESSION));
    meeting->answered = 0;
    meeting->pong = 0;
    busway_publish(own + BUSWAY_LINE_ECHO, 0);
    busway_publish(own + BUSWAY_LINE_PONG, 0);
    busway_publish(own + BUSWAY_LINE_KEY, place->key);
    busway_publish(own + BUSWAY_LINE_SESSION, meeting->session);
    BUSWAY_FENCE();
    return BUSWAY_OK;
}

/* The other end's session; 0 if there is none of this channel. Repeats its ping: half of one is repeated too, and is none that was asked. */
static inline uint64_t busway_meeting_other(struct busway_meeting *meeting)
{
    uint64_t session = 0;
    uint64_t key = 0;
    uint64_t ping = 0;
    if (!busway_load_published(meeting->other + BUSWAY_LINE_SESSION, &session)
        || !busway_load_published(meeting->other + BUSWAY_LINE_KEY, &key) || key != meeting->key) {
        return 0;
    }
    if (busway_load_published(meeting->other + BUSWAY_LINE_PING, &ping) && ping != meeting->pong) {
        meeting->pong = ping;
        busway_publish(meeting->own + BUSWAY_LINE_PONG, ping);
        BUSWAY_FENCE();
    }
    return session;
}

/* Answers the other end's session, after everything that this end has made ready for it. */
static inline void busway_meeting_answer(struct busway_meeting *meeting, uint64_t session)
{
    meeting->answered = session;
    busway_publish(meeting->own + BUSWAY_LINE_ECHO, session);
    BUSWAY_FENCE();
}

/* First position of the ring between two sessions. */
static inline uint64_t busway_meeting_start(uint64_t source, uint64_t destination)
{
    return (source << 23 | source >> 41) ^ destination * UINT64_C(0x9e3779b97f4a7c15);
}

/* The place of a queuing channel as memory; BUSWAY_INVALID if it is impossible. */
static inline enum busway_status busway_queuing_place(const struct busway_place *place, size_t window_bytes,
                                                      struct busway_ring_layout *layout)
{
    if (busway_ring_layout_init(layout, place->count, place->data_bytes, place->max_size_bytes, false) != BUSWAY_OK) {
        return BUSWAY_INVALID;
    }
    const size_t credit_bytes = BUSWAY_LINE_BYTES + BUSWAY_RING_CREDIT_BYTES;
    const bool is_inside = window_bytes >= BUSWAY_LINE_BYTES && layout->required_bytes <= window_bytes - BUSWAY_LINE_BYTES
        && place->source_at <= window_bytes - BUSWAY_LINE_BYTES - layout->required_bytes && credit_bytes <= window_bytes
        && place->destination_at <= window_bytes - credit_bytes;
    const bool is_aligned = (place->source_at | place->destination_at) % BUSWAY_LINE_BYTES == 0;
    return is_inside && is_aligned ? BUSWAY_OK : BUSWAY_INVALID;
}

/* The source end of a queuing channel. */
struct busway_queuing_source {
    struct busway_ring_producer producer;
    struct busway_meeting meeting;
    const struct busway_environment *environment;
    /* Messages in the ring that the destination had not released when it started anew, as far as its credits told. */
    uint32_t lost;
};

/* The source end of the channel at `place`; `entropy` as for `busway_sampling_source_init`. BUSWAY_INVALID if the place is impossible. */
static inline enum busway_status busway_queuing_source_init(struct busway_queuing_source *source,
                                                            const struct busway_environment *environment,
                                                            const struct busway_place *place, busway_memory window,
                                                            size_t window_bytes, uint64_t entropy)
{
    struct busway_ring_layout layout;
    if (!busway_is_aligned(window) || busway_queuing_place(place, window_bytes, &layout) != BUSWAY_OK) {
        return BUSWAY_INVALID;
    }
    busway_memory own = window + place->source_at;
    busway_memory other = window + place->destination_at;
    source->environment = environment;
    source->lost = 0;
    enum busway_status status
        = busway_ring_producer_init(&source->producer, &layout, own + BUSWAY_LINE_BYTES, layout.required_bytes,
                                    other + BUSWAY_LINE_BYTES, BUSWAY_RING_CREDIT_BYTES, 0);
    return status == BUSWAY_OK ? busway_meeting_init(&source->meeting, place, own, other, entropy) : status;
}

/*
 * Sends a message. BUSWAY_DOWN: the destination is not there, or has not answered yet. BUSWAY_FULL: it has not taken what was sent. BUSWAY_TOO_LONG.
 * With these nothing of the message will be seen.
 */
static inline enum busway_status busway_queuing_send(struct busway_queuing_source *source, const void *message, size_t len_bytes)
{
    struct busway_meeting *meeting = &source->meeting;
    const uint64_t other = busway_meeting_other(meeting);
    uint64_t echo = 0;
    const bool is_there = other != 0 && busway_load_published(meeting->other + BUSWAY_LINE_ECHO, &echo) && echo == meeting->session;
    if (meeting->answered != 0 && (!is_there || other != meeting->answered)) {
        source->lost += busway_ring_unreleased(&source->producer);
        meeting->answered = 0;
    }
    if (!is_there) {
        return BUSWAY_DOWN;
    }
    if (other != meeting->answered) {
        struct busway_ring_producer *producer = &source->producer;
        producer->next_line = busway_meeting_start(meeting->session, other);
        producer->committed = producer->next_line;
        producer->released_lines = producer->next_line;
        producer->next_data = busway_ring_data_start(producer->next_line);
        producer->released_data = producer->next_data;
        busway_meeting_answer(meeting, other);
    }
    return busway_ring_push(&source->producer, message, len_bytes, source->environment->now_ns(source->environment->context));
}

/* The destination end of a queuing channel. */
struct busway_queuing_destination {
    struct busway_ring_consumer consumer;
    struct busway_meeting meeting;
};

/* The destination end of the channel at `place`; `entropy` as for `busway_sampling_source_init`. BUSWAY_INVALID if the place is impossible. */
static inline enum busway_status busway_queuing_destination_init(struct busway_queuing_destination *destination,
                                                                 const struct busway_place *place, busway_memory window,
                                                                 size_t window_bytes, uint64_t entropy)
{
    struct busway_ring_layout layout;
    if (!busway_is_aligned(window) || busway_queuing_place(place, window_bytes, &layout) != BUSWAY_OK) {
        return BUSWAY_INVALID;
    }
    busway_memory own = window + place->destination_at;
    busway_memory other = window + place->source_at;
    enum busway_status status
        = busway_ring_consumer_init(&destination->consumer, &layout, other + BUSWAY_LINE_BYTES, layout.required_bytes,
                                    own + BUSWAY_LINE_BYTES, BUSWAY_RING_CREDIT_BYTES, 0);
    return status == BUSWAY_OK ? busway_meeting_init(&destination->meeting, place, own, other, entropy) : status;
}

/*
 * Takes the next message into `buffer` and says in `message` what it is. BUSWAY_EMPTY: none has come. BUSWAY_DOWN: the source is not there.
 * BUSWAY_BUFFER_TOO_SMALL: `message` holds the length to provide, and the message stays. BUSWAY_CORRUPT: the source broke the
 * protocol; nothing comes until one of the ends starts anew. A core that shall count as running calls this, or `busway_queuing_send`, several
 * times within the `timeout` of the link's bus in the system file, 1.5 s by default.
 */
static inline enum busway_status busway_queuing_receive(struct busway_queuing_destination *destination, void *buffer,
                                                        size_t buffer_bytes, struct busway_message *message)
{
    struct busway_meeting *meeting = &destination->meeting;
    struct busway_ring_consumer *consumer = &destination->consumer;
    const uint64_t other = busway_meeting_other(meeting);
    if (other == 0) {
        return BUSWAY_DOWN;
    }
    if (other != meeting->answered) {
        if (meeting->answered != 0) {
            /* The new source waits for an answer: what the former one left comes first. */
            const enum busway_status left = busway_ring_pop(consumer, buffer, buffer_bytes, message);
            if (left == BUSWAY_OK || left == BUSWAY_BUFFER_TOO_SMALL) {
                return left;
            }
        }
        const uint64_t start = busway_meeting_start(other, meeting->session);
        consumer->next_line = start;
        consumer->told_lines = start;
        consumer->next_data = busway_ring_data_start(start);
        consumer->told_data = consumer->next_data;
        consumer->has_front = false;
        busway_ring_prepare_credits(consumer->credit, start);
        busway_meeting_answer(meeting, other);
    }
    enum busway_status status = busway_ring_pop(consumer, buffer, buffer_bytes, message);
    if (status == BUSWAY_EMPTY) {
        /* Nothing waits: let the source know all the room there is. */
        busway_ring_flush_credits(consumer);
    }
    return status;
}

#endif
