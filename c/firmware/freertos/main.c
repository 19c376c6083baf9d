/*
 * The firmware under FreeRTOS: one task has the ports, another one of higher priority interrupts it at every tick, as a control loop does.
 *
 * The ports need nothing of FreeRTOS: no call waits, so the task polls, and sleeps for a tick when nothing has come.
 */
#include "FreeRTOS.h"
#include "task.h"

#include "answer.h"

#define STACK_WORDS 256

static StaticTask_t ports_task, control_task;
static StackType_t ports_stack[STACK_WORDS], control_stack[STACK_WORDS];
/* What the control loop has computed; volatile, or there would be no loop. */
static volatile uint32_t control_output;

static void ports(void *unused)
{
    (void)unused;
    if (answer_init()) {
        for (;;) {
            if (!answer_step()) {
                vTaskDelay(1);
            }
        }
    }
    vTaskSuspend(NULL);
}

static void control(void *unused)
{
    TickType_t woken = xTaskGetTickCount();
    (void)unused;
    for (;;) {
        for (uint32_t step = 0; step < 1000; step++) {
            control_output = control_output * 1664525u + 1013904223u;
        }
        vTaskDelayUntil(&woken, 1);
    }
}

int main(void)
{
    (void)xTaskCreateStatic(ports, "ports", STACK_WORDS, NULL, 1, ports_stack, &ports_task);
    (void)xTaskCreateStatic(control, "control", STACK_WORDS, NULL, 2, control_stack, &control_task);
    vTaskStartScheduler();
    return 1;
}
