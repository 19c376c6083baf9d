/*
 * Every call of the headers against memory that says anything at any time: the entry points that c/verify/run analyses.
 *
 * Contract: `memory` and `credit` are volatile, so the analyser takes each load of them for any value whatever; `buffer` has the size that
 * is promised to the calls, and no more. No alarm means: no access outside these three, no undefined shift, overflow or division, whatever
 * the other side writes.
 */
#include "busway/port.h"

#define MEMORY_BYTES 1024
#define BUFFER_BYTES 100

static volatile unsigned char memory[MEMORY_BYTES] __attribute__((aligned(8)));
static volatile unsigned char credit[64] __attribute__((aligned(8)));
static unsigned char buffer[BUFFER_BYTES];
/* Any value: arguments of callers. */
static volatile uint64_t any_u64;
static volatile size_t any_size;
static volatile int more;

static uint64_t now_ns(void *context)
{
    (void)context;
    return any_u64;
}

static const struct busway_environment environment = {now_ns, 0};

void register_reader(void)
{
    struct busway_register_layout layout = {0};
    struct busway_register_reader reader = {0};
    struct busway_sample sample = {0};
    if (busway_register_layout_init(&layout, 3, BUFFER_BYTES, true) != BUSWAY_OK
        || busway_register_reader_init(&reader, &layout, memory, MEMORY_BYTES, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        (void)busway_register_has_news(&reader);
        (void)busway_register_read(&reader, buffer, BUFFER_BYTES, &sample);
    }
}

void register_writer(void)
{
    struct busway_register_layout layout = {0};
    struct busway_register_writer writer = {0};
    if (busway_register_layout_init(&layout, 3, BUFFER_BYTES, true) != BUSWAY_OK
        || busway_register_writer_init(&writer, &layout, memory, MEMORY_BYTES, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        size_t len_bytes = any_size;
        if (len_bytes <= BUFFER_BYTES) {
            (void)busway_register_write(&writer, buffer, len_bytes, any_u64);
        }
    }
}

/* Messages that fit their line. */
void ring_consumer(void)
{
    struct busway_ring_layout layout = {0};
    struct busway_ring_consumer consumer = {0};
    struct busway_message message = {0};
    if (busway_ring_layout_init(&layout, 16, 0, 40, true) != BUSWAY_OK
        || busway_ring_consumer_init(&consumer, &layout, memory, MEMORY_BYTES, credit, sizeof credit, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        (void)busway_ring_pop(&consumer, buffer, BUFFER_BYTES, &message);
        busway_ring_flush_credits(&consumer);
    }
}

void ring_producer(void)
{
    struct busway_ring_layout layout = {0};
    struct busway_ring_producer producer = {0};
    if (busway_ring_layout_init(&layout, 16, 0, 40, true) != BUSWAY_OK
        || busway_ring_producer_init(&producer, &layout, memory, MEMORY_BYTES, credit, sizeof credit, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        size_t len_bytes = any_size;
        if (len_bytes <= BUFFER_BYTES) {
            (void)busway_ring_push(&producer, buffer, len_bytes, any_u64);
        }
    }
}

/*
 * Where a long message lies follows from the position and the length that the line claims. The analyser loses how the two are related, so they
 * are taken one by one: every place where a message may begin, and the
 * shortest and the longest message of each number of lines.
 */
void ring_data(void)
{
    struct busway_ring_layout layout = {0};
    static const size_t lengths[4] = {41, 64, 65, BUFFER_BYTES};
    if (busway_ring_layout_init(&layout, 8, 256, BUFFER_BYTES, false) != BUSWAY_OK) {
        return;
    }
    /*@ loop unroll 4; */
    for (uint64_t begin = 0; begin < 256; begin += 64) {
        /*@ loop unroll 4; */
        for (unsigned i = 0; i < 4; i++) {
            const size_t len_bytes = lengths[i];
            const uint64_t at = busway_ring_place(&layout, begin, len_bytes);
            busway_read_bytes(buffer, memory + busway_ring_data(&layout, at), len_bytes);
            busway_write_bytes(memory + busway_ring_data(&layout, at), buffer, len_bytes);
        }
    }
}

/* All else that a consumer does with long messages. */
void ring_peek(void)
{
    struct busway_ring_layout layout = {0};
    struct busway_ring_consumer consumer = {0};
    struct busway_message message = {0};
    if (busway_ring_layout_init(&layout, 8, 512, BUFFER_BYTES, false) != BUSWAY_OK
        || busway_ring_consumer_init(&consumer, &layout, memory, MEMORY_BYTES, credit, sizeof credit, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        (void)busway_ring_peek(&consumer, &message);
        busway_ring_release(&consumer);
    }
}

static const struct busway_place place = {
    .key = 7, .source_at = 0, .destination_at = 768, .max_size_bytes = 40, .data_bytes = 0, .count = 8,
};

void sampling_destination(void)
{
    struct busway_sampling_destination destination = {0};
    struct busway_sample sample = {0};
    bool is_valid;
    if (busway_sampling_destination_init(&destination, &environment, &place, memory, MEMORY_BYTES, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        (void)busway_sampling_read(&destination, buffer, BUFFER_BYTES, &sample, &is_valid);
    }
}

void queuing_destination(void)
{
    struct busway_queuing_destination destination = {0};
    struct busway_message message = {0};
    if (busway_queuing_destination_init(&destination, &place, memory, MEMORY_BYTES, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        (void)busway_queuing_receive(&destination, buffer, BUFFER_BYTES, &message);
    }
}

void queuing_source(void)
{
    struct busway_queuing_source source = {0};
    if (busway_queuing_source_init(&source, &environment, &place, memory, MEMORY_BYTES, any_u64) != BUSWAY_OK) {
        return;
    }
    while (more) {
        size_t len_bytes = any_size;
        if (len_bytes <= BUFFER_BYTES) {
            (void)busway_queuing_send(&source, buffer, len_bytes);
        }
    }
}
