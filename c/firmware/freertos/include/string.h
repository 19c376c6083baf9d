/* What FreeRTOS's kernel takes of the C library, which is not linked. */
#ifndef FIRMWARE_STRING_H
#define FIRMWARE_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t len_bytes);
void *memset(void *to, int value, size_t len_bytes);

#endif
