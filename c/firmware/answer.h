/* What the firmware does, whatever it runs under. Used by one task. */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>

/* Opens the ports; false if a place is impossible. Before the first step. */
bool answer_init(void);

/* Answers what has come: a message of each channel at most. Whether it did anything. Does not wait. */
bool answer_step(void);

#endif
