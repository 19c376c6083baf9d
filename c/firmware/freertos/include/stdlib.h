/* FreeRTOS's kernel asks for it, and takes nothing of it but size_t. */
#include <stddef.h>
