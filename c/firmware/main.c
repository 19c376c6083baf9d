/* The firmware on bare metal: one endless loop, no interrupt. */
#include "answer.h"

int main(void)
{
    if (!answer_init()) {
        return 1;
    }
    for (;;) {
        (void)answer_step();
    }
}
