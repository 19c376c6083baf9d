/* The two functions of the C library that FreeRTOS's kernel, and the compiler for it, call. Built with -ffreestanding, or the loops would call what they are. */
#include <string.h>

void *memcpy(void *restrict to, const void *restrict from, size_t len_bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    for (size_t at = 0; at < len_bytes; at++) {
        target[at] = source[at];
    }
    return to;
}

void *memset(void *to, int value, size_t len_bytes)
{
    unsigned char *target = to;
    for (size_t at = 0; at < len_bytes; at++) {
        target[at] = (unsigned char)value;
    }
    return to;
}
