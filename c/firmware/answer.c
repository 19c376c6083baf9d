/*
 * What the firmware does: answers what a Linux host sends over the memory that both see.
 *
 * Contract: as answer.h says. Two sampling channels: each new COMMAND is answered with a STATE. Two queuing channels: each message of WORK comes back in DONE. Their places
 * come from the system file (`places.h`, which `busway check --places` writes). The answer to a message is its bytes, each inverted. The clock
 * is that of the mps2-an385 board. Called by main.c, or by a task of freertos/main.c.
 */
#include "answer.h"

#include "busway/port.h"

#include "places.h"

/* The board's PSRAM, which the other processor sees as a file. */
#define WINDOW ((busway_memory)0x21000000)
#define WINDOW_BYTES ((size_t)16 << 20)

/* Timer 0 of the board (CMSDK APB timer): counts down at 25 MHz. */
#define TIMER ((volatile uint32_t *)0x40000000)
#define TIMER_CONTROL 0
#define TIMER_VALUE 1
#define TIMER_RELOAD 2
#define TICK_NS 40u

/* The board has no clock of its own that Linux knows: it takes the time from the stamps of COMMAND and counts on from there. */
struct follower {
    uint64_t time_ns;
    uint32_t value;
};

static void follow(struct follower *clock)
{
    const uint32_t value = TIMER[TIMER_VALUE];
    clock->time_ns += (uint64_t)(clock->value - value) * TICK_NS;
    clock->value = value;
}

static uint64_t now_ns(void *context)
{
    struct follower *clock = (struct follower *)context;
    follow(clock);
    return clock->time_ns;
}

static struct follower follower;
static const struct busway_environment environment = {now_ns, &follower};

static struct busway_sampling_destination command;
static struct busway_sampling_source state;
static struct busway_queuing_destination work;
static struct busway_queuing_source done;
/* An answer that waits for room in DONE, if `has_answer`. */
static unsigned char answer[256];
static size_t answer_bytes;
static bool has_answer;

static void invert(unsigned char *message, size_t len_bytes)
{
    for (size_t at = 0; at < len_bytes; at++) {
        message[at] = (unsigned char)~message[at];
    }
}

/* Whether there was a new message. */
static bool answer_sampling(void)
{
    static unsigned char buffer[64];
    struct busway_sample sample = {0, 0, 0};
    bool is_valid;
    if (busway_sampling_read(&command, buffer, sizeof buffer, &sample, &is_valid) != BUSWAY_OK) {
        return false;
    }
    follow(&follower);
    follower.time_ns = sample.time_ns;
    invert(buffer, sample.len_bytes);
    (void)busway_sampling_write(&state, buffer, sample.len_bytes);
    return true;
}

/* Whether an answer left. */
static bool answer_queuing(void)
{
    struct busway_message message = {0, 0};
    if (!has_answer && busway_queuing_receive(&work, answer, sizeof answer, &message) == BUSWAY_OK) {
        invert(answer, message.len_bytes);
        answer_bytes = message.len_bytes;
        has_answer = true;
    }
    if (has_answer && busway_queuing_send(&done, answer, answer_bytes) == BUSWAY_OK) {
        has_answer = false;
        return true;
    }
    return false;
}

bool answer_init(void)
{
    TIMER[TIMER_RELOAD] = UINT32_MAX;
    TIMER[TIMER_CONTROL] = 1;
    return busway_sampling_destination_init(&command, &environment, &BUSWAY_COMMAND_IN, WINDOW, WINDOW_BYTES, 1000000000u) == BUSWAY_OK
        && busway_sampling_source_init(&state, &environment, &BUSWAY_STATE_OUT, WINDOW, WINDOW_BYTES, 0) == BUSWAY_OK
        && busway_queuing_destination_init(&work, &BUSWAY_WORK_IN, WINDOW, WINDOW_BYTES, 0) == BUSWAY_OK
        && busway_queuing_source_init(&done, &environment, &BUSWAY_DONE_OUT, WINDOW, WINDOW_BYTES, 0) == BUSWAY_OK;
}

bool answer_step(void)
{
    const bool is_sampling = answer_sampling();
    return answer_queuing() || is_sampling;
}
