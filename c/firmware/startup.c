/*
 * What runs before `main` on a Cortex-M: the vector table and the first values of memory.
 *
 * Contract: the names that begin and end sections come from link.ld. Nothing here returns.
 */
#include <stdint.h>

extern uint32_t data_image[], data_begin[], data_end[], bss_begin[], bss_end[], stack_end[];

int main(void);

void busway_reset(void)
{
    /* Volatile, or the compiler makes calls of `memcpy` and `memset` of the loops, and there is no library. */
    volatile uint32_t *to = data_begin;
    for (const uint32_t *from = data_image; to < data_end; from++, to++) {
        *to = *from;
    }
    for (to = bss_begin; to < bss_end; to++) {
        *to = 0;
    }
    (void)main();
    for (;;) {
    }
}

static void stop(void)
{
    for (;;) {
    }
}

/* Of an operating system, where there is one. */
__attribute__((weak, alias("stop"))) void busway_supervisor_call(void);
__attribute__((weak, alias("stop"))) void busway_pended_call(void);
__attribute__((weak, alias("stop"))) void busway_tick(void);

typedef void (*handler)(void);

/* Stack, reset, and the 14 system exceptions (ARMv7-M Architecture Reference Manual, B1.5.2). No other interrupt is enabled. */
__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)(uintptr_t)stack_end, busway_reset, stop, stop, stop, stop, stop, 0, 0, 0, 0,
    busway_supervisor_call, stop, 0, busway_pended_call, busway_tick,
};
