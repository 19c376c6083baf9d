/*
 * Queuing ports of port.h against each other, one end started anew after the other: what arrives, what is counted, what is answered.
 *
 * Ends with 0, or with the line of what did not hold. Compiled and run by restarts.rs, for each width of words.
 */
#include "busway/port.h"

#define HOLDS(condition)    \
    do {                    \
        if (!(condition)) { \
            return __LINE__; \
        }                   \
    } while (0)

#define WINDOW_BYTES ((size_t)8192)

static const struct busway_place place = {
    .key = 77, .source_at = 0, .destination_at = 4096, .max_size_bytes = 256, .data_bytes = 2048, .count = 8,
};

static uint64_t now_ns(void *context)
{
    (void)context;
    return 1;
}

static const struct busway_environment environment = {now_ns, 0};
static uint64_t window_words[WINDOW_BYTES / 8];
static struct busway_queuing_source source;
static struct busway_queuing_destination destination;

static busway_memory window(void)
{
    return (busway_memory)window_words;
}

static int start_source(void)
{
    return busway_queuing_source_init(&source, &environment, &place, window(), WINDOW_BYTES, 0) == BUSWAY_OK;
}

static int start_destination(void)
{
    return busway_queuing_destination_init(&destination, &place, window(), WINDOW_BYTES, 0) == BUSWAY_OK;
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

static int a_ping_is_repeated_by_each_call_and_an_old_one_is_not(void)
{
    busway_memory ping = window() + place.source_at + BUSWAY_LINE_PING;
    busway_memory pong = window() + place.destination_at + BUSWAY_LINE_PONG;
    busway_store64(ping, 41);
    HOLDS(receive() == 0 && busway_load_settled(pong) == 41);
    HOLDS(start_destination());
    HOLDS(busway_load_settled(pong) == 0);
    HOLDS(receive() == 0 && busway_load_settled(pong) == 41);
    busway_store64(window() + place.destination_at + BUSWAY_LINE_PING, 7);
    HOLDS(send(10) == BUSWAY_OK && busway_load_settled(window() + place.source_at + BUSWAY_LINE_PONG) == 7);
    return 0;
}

int main(void)
{
    int (*const tests[])(void) = {
        a_message_arrives_once_both_are_there,
        what_a_source_left_arrives_before_what_the_next_one_sends,
        what_lay_in_the_ring_when_the_destination_started_anew_is_counted,
        a_ping_is_repeated_by_each_call_and_an_old_one_is_not,
    };
    for (size_t at = 0; at < sizeof tests / sizeof tests[0]; at++) {
        int line = tests[at]();
        if (line != 0) {
            return line;
        }
    }
    return 0;
}
