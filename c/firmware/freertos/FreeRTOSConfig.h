/* FreeRTOS as this firmware needs it: no heap, preemption, a tick each millisecond. Each name is described at freertos.org/Documentation, "Customization". */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

/* Of the mps2-an385 board. */
#define configCPU_CLOCK_HZ 25000000u
#define configTICK_RATE_HZ 1000u
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_32_BITS
#define configUSE_PREEMPTION 1
#define configMAX_PRIORITIES 3
#define configMINIMAL_STACK_SIZE 128
#define configUSE_IDLE_HOOK 0
#define configUSE_TICK_HOOK 0
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 0
#define configKERNEL_PROVIDED_STATIC_MEMORY 1

/* The three highest of a Cortex-M3's eight bits of priority; interrupts at 5 and below may call the kernel, which itself has the lowest. */
#define configPRIO_BITS 3
#define configKERNEL_INTERRUPT_PRIORITY (7 << (8 - configPRIO_BITS))
#define configMAX_SYSCALL_INTERRUPT_PRIORITY (5 << (8 - configPRIO_BITS))

#define INCLUDE_vTaskDelay 1
#define INCLUDE_xTaskDelayUntil 1
#define INCLUDE_vTaskSuspend 1

/* The kernel's three handlers, by the names that startup.c has in its table. */
#define vPortSVCHandler busway_supervisor_call
#define xPortPendSVHandler busway_pended_call
#define xPortSysTickHandler busway_tick

#endif
