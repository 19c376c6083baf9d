/*
 * The inline functions of the headers as symbols that Rust can call, once for each width of words, with and without a cache that is not coherent.
 *
 * Contract: `storage` is private memory of STORAGE_BYTES on a multiple of 8, the same from an init function on. With a cache, memory is what
 * `Memory::map_cached` maps. Called by this crate's `ffi` module only.
 */
#ifdef INCOHERENT_LINE_BYTES
#define MEMORY_OF(at) ((at) + CACHE_TO_MEMORY_BYTES)
#include "incoherent.h"
#endif

#include "busway/port.h"

#define JOIN_AGAIN(prefix, name) prefix##name
#define JOIN(prefix, name) JOIN_AGAIN(prefix, name)
#define EXPORT(name) JOIN(PREFIX, name)

#define STORAGE_BYTES 256
/* An array of negative size where a structure outgrows its storage. */
typedef char writer_fits[sizeof(struct busway_register_writer) <= STORAGE_BYTES ? 1 : -1];
typedef char reader_fits[sizeof(struct busway_register_reader) <= STORAGE_BYTES ? 1 : -1];
typedef char producer_fits[sizeof(struct busway_ring_producer) <= STORAGE_BYTES ? 1 : -1];
typedef char consumer_fits[sizeof(struct busway_ring_consumer) <= STORAGE_BYTES ? 1 : -1];

uint32_t EXPORT(register_writer)(void *storage, uint32_t slots, size_t max_size_bytes, uint32_t has_checksum, void *memory,
                                 size_t memory_bytes, uint64_t start);
uint32_t EXPORT(register_writer)(void *storage, uint32_t slots, size_t max_size_bytes, uint32_t has_checksum, void *memory,
                                 size_t memory_bytes, uint64_t start)
{
    struct busway_register_layout layout;
    enum busway_status status = busway_register_layout_init(&layout, slots, max_size_bytes, has_checksum != 0);
    if (status != BUSWAY_OK) {
        return status;
    }
    return busway_register_writer_init(storage, &layout, memory, memory_bytes, start);
}

uint32_t EXPORT(register_write)(void *storage, const void *payload, size_t len_bytes, uint64_t time_ns);
uint32_t EXPORT(register_write)(void *storage, const void *payload, size_t len_bytes, uint64_t time_ns)
{
    return busway_register_write(storage, payload, len_bytes, time_ns);
}

void EXPORT(register_prepare)(void *memory, uint64_t start);
void EXPORT(register_prepare)(void *memory, uint64_t start)
{
    busway_register_prepare(memory, start);
}

uint32_t EXPORT(register_reader)(void *storage, uint32_t slots, size_t max_size_bytes, uint32_t has_checksum, void *memory,
                                 size_t memory_bytes, uint64_t start);
uint32_t EXPORT(register_reader)(void *storage, uint32_t slots, size_t max_size_bytes, uint32_t has_checksum, void *memory,
                                 size_t memory_bytes, uint64_t start)
{
    struct busway_register_layout layout;
    enum busway_status status = busway_register_layout_init(&layout, slots, max_size_bytes, has_checksum != 0);
    if (status != BUSWAY_OK) {
        return status;
    }
    return busway_register_reader_init(storage, &layout, memory, memory_bytes, start);
}

uint32_t EXPORT(register_read)(void *storage, void *buffer, size_t buffer_bytes, uint64_t sample[3]);
uint32_t EXPORT(register_read)(void *storage, void *buffer, size_t buffer_bytes, uint64_t sample[3])
{
    struct busway_sample found = {0, 0, 0};
    enum busway_status status = busway_register_read(storage, buffer, buffer_bytes, &found);
    sample[0] = found.sequence;
    sample[1] = found.time_ns;
    sample[2] = found.len_bytes;
    return status;
}

uint32_t EXPORT(register_has_news)(const void *storage);
uint32_t EXPORT(register_has_news)(const void *storage)
{
    return busway_register_has_news(storage);
}

uint32_t EXPORT(ring_producer)(void *storage, uint32_t lines, size_t data_bytes, size_t max_size_bytes, uint32_t has_checksum,
                               void *memory, size_t memory_bytes, void *credit, size_t credit_bytes, uint64_t start);
uint32_t EXPORT(ring_producer)(void *storage, uint32_t lines, size_t data_bytes, size_t max_size_bytes, uint32_t has_checksum,
                               void *memory, size_t memory_bytes, void *credit, size_t credit_bytes, uint64_t start)
{
    struct busway_ring_layout layout;
    enum busway_status status = busway_ring_layout_init(&layout, lines, data_bytes, max_size_bytes, has_checksum != 0);
    if (status != BUSWAY_OK) {
        return status;
    }
    return busway_ring_producer_init(storage, &layout, memory, memory_bytes, credit, credit_bytes, start);
}

void EXPORT(ring_prepare_credits)(void *credit, uint64_t start);
void EXPORT(ring_prepare_credits)(void *credit, uint64_t start)
{
    busway_ring_prepare_credits(credit, start);
}

uint32_t EXPORT(ring_stage)(void *storage, const void *payload, size_t len_bytes, uint64_t time_ns);
uint32_t EXPORT(ring_stage)(void *storage, const void *payload, size_t len_bytes, uint64_t time_ns)
{
    return busway_ring_stage(storage, payload, len_bytes, time_ns);
}

void EXPORT(ring_commit)(void *storage);
void EXPORT(ring_commit)(void *storage)
{
    busway_ring_commit(storage);
}

uint32_t EXPORT(ring_unreleased)(void *storage);
uint32_t EXPORT(ring_unreleased)(void *storage)
{
    return busway_ring_unreleased(storage);
}

uint32_t EXPORT(ring_consumer)(void *storage, uint32_t lines, size_t data_bytes, size_t max_size_bytes, uint32_t has_checksum,
                               void *memory, size_t memory_bytes, void *credit, size_t credit_bytes, uint64_t start);
uint32_t EXPORT(ring_consumer)(void *storage, uint32_t lines, size_t data_bytes, size_t max_size_bytes, uint32_t has_checksum,
                               void *memory, size_t memory_bytes, void *credit, size_t credit_bytes, uint64_t start)
{
    struct busway_ring_layout layout;
    enum busway_status status = busway_ring_layout_init(&layout, lines, data_bytes, max_size_bytes, has_checksum != 0);
    if (status != BUSWAY_OK) {
        return status;
    }
    return busway_ring_consumer_init(storage, &layout, memory, memory_bytes, credit, credit_bytes, start);
}

uint32_t EXPORT(ring_pop)(void *storage, void *buffer, size_t buffer_bytes, uint64_t message[2]);
uint32_t EXPORT(ring_pop)(void *storage, void *buffer, size_t buffer_bytes, uint64_t message[2])
{
    struct busway_message found = {0, 0};
    enum busway_status status = busway_ring_pop(storage, buffer, buffer_bytes, &found);
    message[0] = found.time_ns;
    message[1] = found.len_bytes;
    return status;
}

void EXPORT(ring_flush_credits)(void *storage);
void EXPORT(ring_flush_credits)(void *storage)
{
    busway_ring_flush_credits(storage);
}

static uint64_t told_ns(void *context)
{
    return *(uint64_t *)context;
}

/* Whether a message that is written at `time_ns` is valid at `now_ns`; 2 if it does not arrive. */
uint32_t EXPORT(sampling_is_valid)(void *memory, size_t memory_bytes, uint64_t time_ns, uint64_t now_ns, uint64_t refresh_period_ns);
uint32_t EXPORT(sampling_is_valid)(void *memory, size_t memory_bytes, uint64_t time_ns, uint64_t now_ns, uint64_t refresh_period_ns)
{
    struct busway_sampling_source source;
    struct busway_sampling_destination destination;
    struct busway_sample sample = {0, 0, 0};
    const struct busway_environment environments[2] = {{told_ns, &time_ns}, {told_ns, &now_ns}};
    const struct busway_place place = {.key = 7, .max_size_bytes = 8, .count = 3};
    bool is_valid;
    if (busway_sampling_source_init(&source, &environments[0], &place, memory, memory_bytes, 0) != BUSWAY_OK
        || busway_sampling_destination_init(&destination, &environments[1], &place, memory, memory_bytes, refresh_period_ns)
               != BUSWAY_OK
        || busway_sampling_write(&source, "message", 8) != BUSWAY_OK
        || busway_sampling_read(&destination, &(uint64_t){0}, 8, &sample, &is_valid) != BUSWAY_OK) {
        return 2;
    }
    return is_valid;
}
