/*
 * Every call of the headers once, each as a function of its own: what `c/size` measures, and what the tests compile for each target.
 */
#include "busway/port.h"

typedef enum busway_status status;

status size_register_layout(struct busway_register_layout *layout, uint32_t slots, size_t max_size_bytes);
status size_register_writer(struct busway_register_writer *writer, const struct busway_register_layout *layout, busway_memory memory,
                            size_t bytes, uint64_t start);
status size_register_write(struct busway_register_writer *writer, const void *message, size_t bytes, uint64_t time_ns);
status size_register_reader(struct busway_register_reader *reader, const struct busway_register_layout *layout, busway_memory memory,
                            size_t bytes, uint64_t start);
status size_register_read(struct busway_register_reader *reader, void *buffer, size_t bytes, struct busway_sample *sample);
status size_ring_layout(struct busway_ring_layout *layout, uint32_t lines, size_t data_bytes, size_t max_size_bytes);
status size_ring_producer(struct busway_ring_producer *producer, const struct busway_ring_layout *layout, busway_memory memory,
                          size_t bytes, busway_memory credit, uint64_t start);
status size_ring_push(struct busway_ring_producer *producer, const void *message, size_t bytes, uint64_t time_ns);
status size_ring_consumer(struct busway_ring_consumer *consumer, const struct busway_ring_layout *layout, busway_memory memory,
                          size_t bytes, busway_memory credit, uint64_t start);
status size_ring_pop(struct busway_ring_consumer *consumer, void *buffer, size_t bytes, struct busway_message *message);

status size_register_layout(struct busway_register_layout *layout, uint32_t slots, size_t max_size_bytes)
{
    return busway_register_layout_init(layout, slots, max_size_bytes, true);
}

status size_register_writer(struct busway_register_writer *writer, const struct busway_register_layout *layout, busway_memory memory,
                            size_t bytes, uint64_t start)
{
    return busway_register_writer_init(writer, layout, memory, bytes, start);
}

status size_register_write(struct busway_register_writer *writer, const void *message, size_t bytes, uint64_t time_ns)
{
    return busway_register_write(writer, message, bytes, time_ns);
}

status size_register_reader(struct busway_register_reader *reader, const struct busway_register_layout *layout, busway_memory memory,
                            size_t bytes, uint64_t start)
{
    return busway_register_reader_init(reader, layout, memory, bytes, start);
}

status size_register_read(struct busway_register_reader *reader, void *buffer, size_t bytes, struct busway_sample *sample)
{
    return busway_register_read(reader, buffer, bytes, sample);
}

status size_ring_layout(struct busway_ring_layout *layout, uint32_t lines, size_t data_bytes, size_t max_size_bytes)
{
    return busway_ring_layout_init(layout, lines, data_bytes, max_size_bytes, true);
}

status size_ring_producer(struct busway_ring_producer *producer, const struct busway_ring_layout *layout, busway_memory memory,
                          size_t bytes, busway_memory credit, uint64_t start)
{
    return busway_ring_producer_init(producer, layout, memory, bytes, credit, BUSWAY_RING_CREDIT_BYTES, start);
}

status size_ring_push(struct busway_ring_producer *producer, const void *message, size_t bytes, uint64_t time_ns)
{
    return busway_ring_push(producer, message, bytes, time_ns);
}

status size_ring_consumer(struct busway_ring_consumer *consumer, const struct busway_ring_layout *layout, busway_memory memory,
                          size_t bytes, busway_memory credit, uint64_t start)
{
    return busway_ring_consumer_init(consumer, layout, memory, bytes, credit, BUSWAY_RING_CREDIT_BYTES, start);
}

status size_ring_pop(struct busway_ring_consumer *consumer, void *buffer, size_t bytes, struct busway_message *message)
{
    return busway_ring_pop(consumer, buffer, bytes, message);
}
