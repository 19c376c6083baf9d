/*
 * Ports of port.h against each other, one end started anew after the other: what arrives, what is counted, what is answered.
 *
 * Ends with 0, or with the line of what did not hold. Compiled and run by restarts.rs, for each width of words; with INCOHERENT_LINE_BYTES each end
 * has a cache of its own, which is not coherent and keeps what it holds when the end starts anew.
 */
#include <stddef.h>
#include <stdint.h>

#define WINDOW_BYTES ((size_t)8192)

static uint64_t memory[WINDOW_BYTES / 8] __attribute__((aligned(64)));

#ifdef INCOHERENT_LINE_BYTES
static uint64_t source_cache[WINDOW_BYTES / 8] __attribute__((aligned(64)));
static uint64_t destination_cache[WINDOW_BYTES / 8] __attribute__((aligned(64)));

static volatile unsigned char *memory_of(volatile unsigned char *at)
{
    const size_t in_source = (size_t)((uintptr_t)at - (uintptr_t)source_cache);
    const size_t in_destination = (size_t)((uintptr_t)at - (uintptr_t)destination_cache);
    const size_t offset = in_source < WINDOW_BYTES ? in_source : in_destination;
    if (offset >= WINDOW_BYTES) {
        __builtin_trap();
    }
    return (volatile unsigned char *)memory + offset;
}
#define MEMORY_OF(at) memory_of(at)
#include "incoherent.h"

/* As after a power cycle of the cores alone. */
static void empty_caches(void)
{
    for (size_t at = 0; at < WINDOW_BYTES / 8; at++) {
        source_cache[at] = 0;
        destination_cache[at] = 0;
    }
}
#else
#define source_cache memory
#define destination_cache memory

static void empty_caches(void)
{
}
#endif

#include "busway/port.h"

#define HOLDS(condition)    \
    do {                    \
        if (!(condition)) { \
            return __LINE__; \
        }                   \
    } while (0)

static const struct busway_place place = {
    .key = 77, .source_at = 0, .destination_at = 4096, .max_size_bytes = 256, .data_bytes = 2048, .count = 8,
};
static const struct busway_place register_place = {.key = 78, .source_at = 6144, .max_size_bytes = 64, .count = 3};

static uint64_t now_ns(void *context)
{
    (void)context;
    return 1;
}

static const struct busway_environment environment = {now_ns, 0};
static struct busway_queuing_source source;
static struct busway_queuing_destination destination;

static int start_source(void)
{
    return busway_queuing_source_init(&source, &environment, &place, (busway_memory)source_cache, WINDOW_BYTES, 0)
        == BUSWAY_OK;
}

static int start_destination(void)
{
    return busway_queuing_destination_init(&destination, &place, (busway_memory)destination_cache, WINDOW_BYTES, 0) == BUSWAY_OK;
}

static enum busway_status send(unsigned char number)
{
    unsigned char message[100];
    for (size_t at = 0; at < sizeof message; at++) {
        message[at] = number;
    }
    return busway_queuing_send(&source, message, sizeof message);
}

/* The number of the next message; 0 if there is none. */
static unsigned char receive(void)
{
    unsigned char buffer[256];
    struct busway_message message;
    return busway_queuing_receive(&destination, buffer, sizeof buffer, &message) == BUSWAY_OK ? buffer[message.len_bytes - 1] : 0;
}

static int a_message_arrives_once_both_are_there(void)
{
    HOLDS(start_source() && start_destination());
    HOLDS(send(1) == BUSWAY_DOWN);
    HOLDS(receive() == 0);
    HOLDS(send(1) == BUSWAY_OK && receive() == 1 && receive() == 0);
    return 0;
}

static int what_a_source_left_arrives_before_what_the_next_one_sends(void)
{
    HOLDS(send(2) == BUSWAY_OK && send(3) == BUSWAY_OK);
    HOLDS(start_source());
    HOLDS(send(4) == BUSWAY_DOWN);
    HOLDS(receive() == 2 && receive() == 3 && receive() == 0);
    HOLDS(send(4) == BUSWAY_OK && receive() == 4 && receive() == 0);
    HOLDS(source.lost == 0);
    return 0;
}

static int what_lay_in_the_ring_when_the_destination_started_anew_is_counted(void)
{
    HOLDS(send(5) == BUSWAY_OK && send(6) == BUSWAY_OK && send(7) == BUSWAY_OK);
    HOLDS(start_destination());
    HOLDS(send(8) == BUSWAY_DOWN);
    HOLDS(receive() == 0);
    HOLDS(send(9) == BUSWAY_OK && receive() == 9);
    HOLDS(source.lost == 3);
    return 0;
}

/* Pings come from memory, as those of a gateway do. */
static int a_ping_is_repeated_by_each_call_and_an_old_one_is_not(void)
{
    busway_memory of_source = (busway_memory)memory + place.source_at;
    busway_memory of_destination = (busway_memory)memory + place.destination_at;
    busway_store64(of_source + BUSWAY_LINE_PING, 41);
    HOLDS(receive() == 0 && busway_load_settled(of_destination + BUSWAY_LINE_PONG) == 41);
    HOLDS(start_destination());
    HOLDS(busway_load_settled(of_destination + BUSWAY_LINE_PONG) == 0);
    HOLDS(receive() == 0 && busway_load_settled(of_destination + BUSWAY_LINE_PONG) == 41);
    busway_store64(of_destination + BUSWAY_LINE_PING, 7);
    HOLDS(send(10) == BUSWAY_OK && busway_load_settled(of_source + BUSWAY_LINE_PONG) == 7);
    return 0;
}

static int a_sampling_source_that_starts_anew_is_read_as_before(void)
{
    struct busway_sampling_source writer;
    struct busway_sampling_destination reader;
    struct busway_sample sample;
    bool is_valid;
    uint64_t sessions[3] = {0, 0, 0};
    HOLDS(busway_sampling_destination_init(&reader, &environment, &register_place, (busway_memory)destination_cache, WINDOW_BYTES, 0)
          == BUSWAY_OK);
    for (unsigned char start = 1; start < 3; start++) {
        HOLDS(busway_sampling_source_init(&writer, &environment, &register_place, (busway_memory)source_cache, WINDOW_BYTES, 0)
              == BUSWAY_OK);
        sessions[start] = writer.session;
        HOLDS(writer.session == busway_session_behind(sessions[start - 1]));
        for (unsigned char number = 0; number < 5; number++) {
            const unsigned char message[2] = {start, number};
            unsigned char buffer[64] = {0, 0};
            HOLDS(busway_sampling_write(&writer, message, sizeof message) == BUSWAY_OK);
            HOLDS(busway_sampling_read(&reader, buffer, sizeof buffer, &sample, &is_valid) == BUSWAY_OK);
            HOLDS(is_valid && sample.len_bytes == sizeof message && buffer[0] == start && buffer[1] == number);
            HOLDS(busway_sampling_read(&reader, buffer, sizeof buffer, &sample, &is_valid) == BUSWAY_UNCHANGED);
        }
        empty_caches();
    }
    return 0;
}

static int an_end_with_an_empty_cache_takes_the_session_behind_that_in_memory(void)
{
    const uint64_t of_source = source.meeting.session;
    const uint64_t of_destination = destination.meeting.session;
    empty_caches();
    HOLDS(start_source() && source.meeting.session == busway_session_behind(of_source));
    HOLDS(start_destination() && destination.meeting.session == busway_session_behind(of_destination));
    return 0;
}

/* A line would have words of two writers. */
static int a_place_that_begins_within_a_line_is_refused(void)
{
    struct busway_sampling_source writer;
    struct busway_sampling_destination reader;
    busway_memory window = (busway_memory)source_cache;
    struct busway_place within = register_place;
    within.source_at += 8;
    HOLDS(busway_sampling_source_init(&writer, &environment, &within, window, WINDOW_BYTES, 0) == BUSWAY_INVALID);
    HOLDS(busway_sampling_destination_init(&reader, &environment, &within, window, WINDOW_BYTES, 0) == BUSWAY_INVALID);
    within = place;
    within.destination_at += 8;
    HOLDS(busway_queuing_source_init(&source, &environment, &within, window, WINDOW_BYTES, 0) == BUSWAY_INVALID);
    HOLDS(busway_queuing_destination_init(&destination, &within, window, WINDOW_BYTES, 0) == BUSWAY_INVALID);
    return 0;
}

int main(void)
{
    int (*const tests[])(void) = {
        a_message_arrives_once_both_are_there,
        what_a_source_left_arrives_before_what_the_next_one_sends,
        what_lay_in_the_ring_when_the_destination_started_anew_is_counted,
        a_ping_is_repeated_by_each_call_and_an_old_one_is_not,
        a_sampling_source_that_starts_anew_is_read_as_before,
        an_end_with_an_empty_cache_takes_the_session_behind_that_in_memory,
        a_place_that_begins_within_a_line_is_refused,
    };
    for (size_t at = 0; at < sizeof tests / sizeof tests[0]; at++) {
        int line = tests[at]();
        if (line != 0) {
            return line;
        }
    }
    return 0;
}
