/*
 * ARINC 653 sampling and queuing ports on Linux: the standard's interface in C.
 *
 * Types, constants and services have the names, the order of parameters and the values of ARINC 653 Part 1 (required
 * services: partition management, process management, time management, interpartition communication, health monitoring) and Part 2 (sampling port extensions).
 * Build with what `pkg-config --cflags --libs busway-apex` says. C code that includes a header of another name is built
 * unchanged with `-include busway/apex.h` and an empty file of that name.
 *
 * Start. A program belongs to a partition of a system file (TOML, or ARINC 653 XML). At its first service it joins the
 * partition that the environment names:
 *
 *     BUSWAY_SYSTEM       path of the system file
 *     BUSWAY_PARTITION    name of the partition
 *     BUSWAY_STORE        directory of the module's state; /dev/shm/busway-MODULE-HOST without it
 *
 * or, before that, the one that it names itself by busway_apex_join. The partition is in the mode COLD_START then, and
 * ports can be created until SET_PARTITION_MODE(NORMAL). Several programs may join one partition and share its ports: who
 * finds NO_ACTION at creation asks GET_..._PORT_ID. If joining fails, one line on standard error says why, every service
 * returns INVALID_CONFIG, and busway_apex_error gives the whole text.
 *
 * Pointers. An output parameter that is NULL gives INVALID_PARAM and nothing is done; a RETURN_CODE that is NULL is not
 * written. A message area that is NULL gives INVALID_PARAM. Where a service receives a message, the area must have room for
 * the port's MAX_MESSAGE_SIZE. A name ends at its first zero byte or after MAX_NAME_LENGTH bytes. When a service returns no
 * message, LENGTH is 0.
 *
 * Threads. Every service may be called by every thread at any time. What the standard calls a process of a partition is here
 * a thread of any of the partition's programs. No service may be called in a signal handler. After fork, the child calls no
 * service unless it executes another program.
 *
 * Times are in nanoseconds, sizes in bytes.
 */
#ifndef BUSWAY_APEX_H
#define BUSWAY_APEX_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Part 1: types and limits ------------------------------------------------------------------------------------------ */

typedef unsigned char      APEX_BYTE;         /*  8 bits */
typedef int                APEX_INTEGER;      /* 32 bits */
typedef unsigned int       APEX_UNSIGNED;     /* 32 bits */
typedef long long          APEX_LONG_INTEGER; /* 64 bits */

/* What the system file may hold; smaller numbers hold for each module. */
#define SYSTEM_LIMIT_NUMBER_OF_PARTITIONS     32
#define SYSTEM_LIMIT_NUMBER_OF_MESSAGES       1048576
#define SYSTEM_LIMIT_MESSAGE_SIZE             2147483647
#define SYSTEM_LIMIT_NUMBER_OF_PROCESSES      128
#define SYSTEM_LIMIT_NUMBER_OF_SAMPLING_PORTS 512
#define SYSTEM_LIMIT_NUMBER_OF_QUEUING_PORTS  512

typedef enum {
    NO_ERROR       = 0, /* valid request, and done */
    NO_ACTION      = 1, /* the state makes the request superfluous, or there is nothing to return */
    NOT_AVAILABLE  = 2, /* impossible at the moment, and the caller did not want to wait */
    INVALID_PARAM  = 3, /* a parameter is wrong in itself */
    INVALID_CONFIG = 4, /* a parameter contradicts the configuration; also: the program has no partition */
    INVALID_MODE   = 5, /* not in this mode, or not for this direction */
    TIMED_OUT      = 6  /* the time-out passed */
} RETURN_CODE_TYPE;

#define MAX_NAME_LENGTH 32

typedef char NAME_TYPE[MAX_NAME_LENGTH];

typedef void (*SYSTEM_ADDRESS_TYPE)(void);
typedef APEX_BYTE *MESSAGE_ADDR_TYPE;

typedef APEX_INTEGER MESSAGE_SIZE_TYPE;
typedef APEX_INTEGER MESSAGE_RANGE_TYPE;

typedef enum {
    SOURCE      = 0,
    DESTINATION = 1
} PORT_DIRECTION_TYPE;

typedef enum {
    FIFO     = 0,
    PRIORITY = 1
} QUEUING_DISCIPLINE_TYPE;

typedef APEX_LONG_INTEGER SYSTEM_TIME_TYPE; /* ns */

#define INFINITE_TIME_VALUE (-1)

typedef APEX_INTEGER WAITING_RANGE_TYPE;
typedef APEX_INTEGER LOCK_LEVEL_TYPE;
typedef APEX_INTEGER NUM_CORES_TYPE;

/* ---- Part 1: partition management -------------------------------------------------------------------------------------- */

#define MAX_NUMBER_OF_PARTITIONS SYSTEM_LIMIT_NUMBER_OF_PARTITIONS

typedef enum {
    IDLE       = 0,
    COLD_START = 1,
    WARM_START = 2,
    NORMAL     = 3
} OPERATING_MODE_TYPE;

typedef APEX_INTEGER PARTITION_ID_TYPE;

typedef enum {
    NORMAL_START         = 0,
    PARTITION_RESTART    = 1,
    HM_MODULE_RESTART    = 2, /* never given here */
    HM_PARTITION_RESTART = 3  /* by `busway module run`, after a fault */
} START_CONDITION_TYPE;

typedef struct {
    SYSTEM_TIME_TYPE     PERIOD;     /* INFINITE_TIME_VALUE: the system file gives it no window */
    SYSTEM_TIME_TYPE     DURATION;   /* as PERIOD */
    PARTITION_ID_TYPE    IDENTIFIER;
    LOCK_LEVEL_TYPE      LOCK_LEVEL; /* of the program's processes */
    OPERATING_MODE_TYPE  OPERATING_MODE;
    START_CONDITION_TYPE START_CONDITION;
    NUM_CORES_TYPE       NUM_ASSIGNED_CORES; /* those that the calling thread may run on */
} PARTITION_STATUS_TYPE;

extern void GET_PARTITION_STATUS(
    /* out */ PARTITION_STATUS_TYPE *PARTITION_STATUS,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

/* Sets the mode for all programs of the partition. A start mode begins a new incarnation, in which no port is created yet; IDLE
 * keeps calls from waiting and ports from being created. For a program that has created processes also:
 * NORMAL starts its processes and does not return, since the thread that initialises has nothing more to do; IDLE ends the program
 * with status 0; a start mode executes it anew, with its arguments. Other programs of the partition go on. */
extern void SET_PARTITION_MODE(
    /* in  */ OPERATING_MODE_TYPE  OPERATING_MODE,
    /* out */ RETURN_CODE_TYPE    *RETURN_CODE);

extern void GET_MY_PARTITION_ID(
    /* out */ PARTITION_ID_TYPE *PARTITION_ID,
    /* out */ RETURN_CODE_TYPE  *RETURN_CODE);

/* ---- Part 1: time management ------------------------------------------------------------------------------------------- */

/* CLOCK_MONOTONIC, the clock of time stamps inside a host. */
extern void GET_TIME(
    /* out */ SYSTEM_TIME_TYPE *SYSTEM_TIME,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

/* Sleeps at least DELAY_TIME; 0 lets another thread run. INVALID_PARAM for a negative time. */
extern void TIMED_WAIT(
    /* in  */ SYSTEM_TIME_TYPE  DELAY_TIME,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

/* Sleeps until the process's next release, which is a whole number of periods after its first; releases that have passed are left out.
 * INVALID_MODE for a thread that is no periodic process. */
extern void PERIODIC_WAIT(
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

/* Moves the deadline that GET_PROCESS_STATUS gives. NO_ACTION for a thread that is no process. */
extern void REPLENISH(
    /* in  */ SYSTEM_TIME_TYPE  BUDGET_TIME,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

/* ---- Part 1: processes -------------------------------------------------------------------------------------------------- */

/* A process is a thread of the program that has created it, and Linux schedules it: BASE_PRIORITY orders processes where they wait at
 * ports of the discipline PRIORITY; it does not choose who runs. TIME_CAPACITY and DEADLINE are kept and reported, and nobody watches them.
 *
 * Threads can't be halted from outside. What one process does to another (STOP, SUSPEND, SET_PRIORITY) takes effect when that one next
 * calls STOP, SUSPEND_SELF, LOCK_PREEMPTION, TIMED_WAIT, PERIODIC_WAIT or RAISE_APPLICATION_ERROR, at once if it waits in one of them; it goes on
 * until then. A process that is started again meanwhile runs beside the rest of its last run. An entry point that returns has stopped its process.
 * STOP_SELF ends the thread as pthread_exit does. */

#define MAX_NUMBER_OF_PROCESSES SYSTEM_LIMIT_NUMBER_OF_PROCESSES
#define MIN_PRIORITY_VALUE      1
#define MAX_PRIORITY_VALUE      239
#define MAX_LOCK_LEVEL          16

typedef NAME_TYPE     PROCESS_NAME_TYPE;
typedef APEX_INTEGER  PROCESS_ID_TYPE; /* from 1 */
typedef APEX_INTEGER  PRIORITY_TYPE;   /* larger is sooner */
typedef APEX_UNSIGNED STACK_SIZE_TYPE; /* bytes, to which what Linux needs is added */

typedef enum {
    DORMANT = 0,
    READY   = 1, /* never given here: Linux does not say who has a processor */
    RUNNING = 2,
    WAITING = 3
} PROCESS_STATE_TYPE;

typedef enum {
    SOFT = 0,
    HARD = 1
} DEADLINE_TYPE;

typedef struct {
    SYSTEM_TIME_TYPE    PERIOD; /* INFINITE_TIME_VALUE: aperiodic */
    SYSTEM_TIME_TYPE    TIME_CAPACITY;
    SYSTEM_ADDRESS_TYPE ENTRY_POINT;
    STACK_SIZE_TYPE     STACK_SIZE;
    PRIORITY_TYPE       BASE_PRIORITY;
    DEADLINE_TYPE       DEADLINE;
    PROCESS_NAME_TYPE   NAME;
} PROCESS_ATTRIBUTE_TYPE;

typedef struct {
    SYSTEM_TIME_TYPE       DEADLINE_TIME;
    PRIORITY_TYPE          CURRENT_PRIORITY;
    PROCESS_STATE_TYPE     PROCESS_STATE;
    PROCESS_ATTRIBUTE_TYPE ATTRIBUTES;
} PROCESS_STATUS_TYPE;

/* Before SET_PARTITION_MODE(NORMAL). */
extern void CREATE_PROCESS(
    /* in  */ const PROCESS_ATTRIBUTE_TYPE *ATTRIBUTES,
    /* out */ PROCESS_ID_TYPE              *PROCESS_ID,
    /* out */ RETURN_CODE_TYPE             *RETURN_CODE);

/* At once in the mode NORMAL; before it, the process starts with the partition. */
extern void START(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void DELAYED_START(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* in  */ SYSTEM_TIME_TYPE  DELAY_TIME,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void STOP(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void STOP_SELF(void);

extern void SUSPEND(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void SUSPEND_SELF(
    /* in  */ SYSTEM_TIME_TYPE  TIME_OUT,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void RESUME(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void SET_PRIORITY(
    /* in  */ PROCESS_ID_TYPE   PROCESS_ID,
    /* in  */ PRIORITY_TYPE     PRIORITY,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void GET_PROCESS_ID(
    /* in  */ const char       *PROCESS_NAME,
    /* out */ PROCESS_ID_TYPE  *PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void GET_MY_ID(
    /* out */ PROCESS_ID_TYPE  *PROCESS_ID,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void GET_PROCESS_STATUS(
    /* in  */ PROCESS_ID_TYPE      PROCESS_ID,
    /* out */ PROCESS_STATUS_TYPE *PROCESS_STATUS,
    /* out */ RETURN_CODE_TYPE    *RETURN_CODE);

/* One process of the program has the lock at a time; another one that asks for it waits. It keeps processes that ask for it apart, as locked
 * preemption does; those that do not ask go on. Services that wait on purpose give INVALID_MODE to who has it. */
extern void LOCK_PREEMPTION(
    /* out */ LOCK_LEVEL_TYPE  *LOCK_LEVEL,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

extern void UNLOCK_PREEMPTION(
    /* out */ LOCK_LEVEL_TYPE  *LOCK_LEVEL,
    /* out */ RETURN_CODE_TYPE *RETURN_CODE);

/* ---- Part 1: health monitoring ------------------------------------------------------------------------------------------ */

#define MAX_ERROR_MESSAGE_SIZE 128

typedef APEX_INTEGER ERROR_MESSAGE_SIZE_TYPE;
typedef APEX_BYTE    ERROR_MESSAGE_TYPE[MAX_ERROR_MESSAGE_SIZE];

typedef enum {
    DEADLINE_MISSED   = 0, /* only APPLICATION_ERROR is ever given here: the others stay Linux's business */
    APPLICATION_ERROR = 1,
    NUMERIC_ERROR     = 2,
    ILLEGAL_REQUEST   = 3,
    STACK_OVERFLOW    = 4,
    MEMORY_VIOLATION  = 5,
    HARDWARE_FAULT    = 6,
    POWER_FAIL        = 7
} ERROR_CODE_TYPE;

typedef struct {
    ERROR_CODE_TYPE         ERROR_CODE;
    ERROR_MESSAGE_SIZE_TYPE LENGTH;
    PROCESS_ID_TYPE         FAILED_PROCESS_ID;
    SYSTEM_ADDRESS_TYPE     FAILED_ADDRESS; /* NULL: not known */
    ERROR_MESSAGE_TYPE      MESSAGE;
} ERROR_STATUS_TYPE;

/* A line on standard error. */
extern void REPORT_APPLICATION_MESSAGE(
    /* in  */ MESSAGE_ADDR_TYPE  MESSAGE_ADDR,
    /* in  */ MESSAGE_SIZE_TYPE  LENGTH,
    /* out */ RETURN_CODE_TYPE  *RETURN_CODE);

/* The handler runs on a thread of its own, from the beginning for each error, while the process that has raised the error waits. It may stop that
 * process. Other processes go on. */
extern void CREATE_ERROR_HANDLER(
    /* in  */ SYSTEM_ADDRESS_TYPE  ENTRY_POINT,
    /* in  */ STACK_SIZE_TYPE      STACK_SIZE,
    /* out */ RETURN_CODE_TYPE    *RETURN_CODE);

extern void GET_ERROR_STATUS(
    /* out */ ERROR_STATUS_TYPE *ERROR_STATUS,
    /* out */ RETURN_CODE_TYPE  *RETURN_CODE);

/* Without an error handler, or in it, or outside of a process: a line on standard error, and the program ends with status 1;
 * `busway module run` then does what the system file says of `application_error`. */
extern void RAISE_APPLICATION_ERROR(
    /* in  */ ERROR_CODE_TYPE          ERROR_CODE,
    /* in  */ MESSAGE_ADDR_TYPE        MESSAGE_ADDR,
    /* in  */ ERROR_MESSAGE_SIZE_TYPE  LENGTH,
    /* out */ RETURN_CODE_TYPE        *RETURN_CODE);

/* ---- Part 1: sampling ports -------------------------------------------------------------------------------------------- */

#define MAX_NUMBER_OF_SAMPLING_PORTS SYSTEM_LIMIT_NUMBER_OF_SAMPLING_PORTS

typedef NAME_TYPE    SAMPLING_PORT_NAME_TYPE;
typedef APEX_INTEGER SAMPLING_PORT_ID_TYPE;

typedef enum {
    INVALID = 0,
    VALID   = 1
} VALIDITY_TYPE;

typedef struct {
    SYSTEM_TIME_TYPE    REFRESH_PERIOD;
    MESSAGE_SIZE_TYPE   MAX_MESSAGE_SIZE;
    PORT_DIRECTION_TYPE PORT_DIRECTION;
    VALIDITY_TYPE       LAST_MSG_VALIDITY;
} SAMPLING_PORT_STATUS_TYPE;

/* Names are parameters of type "const char *", not SAMPLING_PORT_NAME_TYPE, so that a literal shorter than MAX_NAME_LENGTH
 * passes without a compiler's warning. A SAMPLING_PORT_NAME_TYPE passes as well. */
extern void CREATE_SAMPLING_PORT(
    /* in  */ const char            *SAMPLING_PORT_NAME,
    /* in  */ MESSAGE_SIZE_TYPE      MAX_MESSAGE_SIZE,
    /* in  */ PORT_DIRECTION_TYPE    PORT_DIRECTION,
    /* in  */ SYSTEM_TIME_TYPE       REFRESH_PERIOD,
    /* out */ SAMPLING_PORT_ID_TYPE *SAMPLING_PORT_ID,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

extern void WRITE_SAMPLING_MESSAGE(
    /* in  */ SAMPLING_PORT_ID_TYPE  SAMPLING_PORT_ID,
    /* in  */ MESSAGE_ADDR_TYPE      MESSAGE_ADDR,
    /* in  */ MESSAGE_SIZE_TYPE      LENGTH,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

extern void READ_SAMPLING_MESSAGE(
    /* in  */ SAMPLING_PORT_ID_TYPE  SAMPLING_PORT_ID,
    /* in  */ MESSAGE_ADDR_TYPE      MESSAGE_ADDR, /* the message is written there */
    /* out */ MESSAGE_SIZE_TYPE     *LENGTH,
    /* out */ VALIDITY_TYPE         *VALIDITY,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

extern void GET_SAMPLING_PORT_ID(
    /* in  */ const char            *SAMPLING_PORT_NAME,
    /* out */ SAMPLING_PORT_ID_TYPE *SAMPLING_PORT_ID,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

extern void GET_SAMPLING_PORT_STATUS(
    /* in  */ SAMPLING_PORT_ID_TYPE      SAMPLING_PORT_ID,
    /* out */ SAMPLING_PORT_STATUS_TYPE *SAMPLING_PORT_STATUS,
    /* out */ RETURN_CODE_TYPE          *RETURN_CODE);

/* ---- Part 1: queuing ports --------------------------------------------------------------------------------------------- */

#define MAX_NUMBER_OF_QUEUING_PORTS SYSTEM_LIMIT_NUMBER_OF_QUEUING_PORTS

typedef NAME_TYPE    QUEUING_PORT_NAME_TYPE;
typedef APEX_INTEGER QUEUING_PORT_ID_TYPE;

typedef struct {
    MESSAGE_RANGE_TYPE  NB_MESSAGE;
    MESSAGE_RANGE_TYPE  MAX_NB_MESSAGE;
    MESSAGE_SIZE_TYPE   MAX_MESSAGE_SIZE;
    PORT_DIRECTION_TYPE PORT_DIRECTION;
    WAITING_RANGE_TYPE  WAITING_PROCESSES;
} QUEUING_PORT_STATUS_TYPE;

extern void CREATE_QUEUING_PORT(
    /* in  */ const char              *QUEUING_PORT_NAME,
    /* in  */ MESSAGE_SIZE_TYPE        MAX_MESSAGE_SIZE,
    /* in  */ MESSAGE_RANGE_TYPE       MAX_NB_MESSAGE,
    /* in  */ PORT_DIRECTION_TYPE      PORT_DIRECTION,
    /* in  */ QUEUING_DISCIPLINE_TYPE  QUEUING_DISCIPLINE,
    /* out */ QUEUING_PORT_ID_TYPE    *QUEUING_PORT_ID,
    /* out */ RETURN_CODE_TYPE        *RETURN_CODE);

/* TIME_OUT: 0 does not wait, INFINITE_TIME_VALUE waits for ever. */
extern void SEND_QUEUING_MESSAGE(
    /* in  */ QUEUING_PORT_ID_TYPE  QUEUING_PORT_ID,
    /* in  */ MESSAGE_ADDR_TYPE     MESSAGE_ADDR,
    /* in  */ MESSAGE_SIZE_TYPE     LENGTH,
    /* in  */ SYSTEM_TIME_TYPE      TIME_OUT,
    /* out */ RETURN_CODE_TYPE     *RETURN_CODE);

/* TIME_OUT as above. INVALID_CONFIG with a LENGTH above 0: here is a message, and before it the queue has overflowed. */
extern void RECEIVE_QUEUING_MESSAGE(
    /* in  */ QUEUING_PORT_ID_TYPE  QUEUING_PORT_ID,
    /* in  */ SYSTEM_TIME_TYPE      TIME_OUT,
    /* in  */ MESSAGE_ADDR_TYPE     MESSAGE_ADDR, /* the message is written there */
    /* out */ MESSAGE_SIZE_TYPE    *LENGTH,
    /* out */ RETURN_CODE_TYPE     *RETURN_CODE);

extern void GET_QUEUING_PORT_ID(
    /* in  */ const char           *QUEUING_PORT_NAME,
    /* out */ QUEUING_PORT_ID_TYPE *QUEUING_PORT_ID,
    /* out */ RETURN_CODE_TYPE     *RETURN_CODE);

extern void GET_QUEUING_PORT_STATUS(
    /* in  */ QUEUING_PORT_ID_TYPE      QUEUING_PORT_ID,
    /* out */ QUEUING_PORT_STATUS_TYPE *QUEUING_PORT_STATUS,
    /* out */ RETURN_CODE_TYPE         *RETURN_CODE);

extern void CLEAR_QUEUING_PORT(
    /* in  */ QUEUING_PORT_ID_TYPE  QUEUING_PORT_ID,
    /* out */ RETURN_CODE_TYPE     *RETURN_CODE);

/* ---- Part 2: sampling port extensions ---------------------------------------------------------------------------------- */

typedef enum {
    EMPTY_PORT       = 0, /* nothing was ever written */
    CONSUMED_MESSAGE = 1, /* the partition has read the latest message at this port */
    NEW_MESSAGE      = 2  /* it has not */
} UPDATED_TYPE;

typedef enum {
    STALE = 0,
    FRESH = 1
} AGE_TYPE;

typedef struct {
    SYSTEM_TIME_TYPE    REFRESH_PERIOD;
    SYSTEM_TIME_TYPE    TIME_STAMP; /* of the latest message; 0 if there is none */
    MESSAGE_SIZE_TYPE   MAX_MESSAGE_SIZE;
    PORT_DIRECTION_TYPE PORT_DIRECTION;
    AGE_TYPE            MESSAGE_AGE;
    UPDATED_TYPE        UPDATED;
} SAMPLING_PORT_CURRENT_STATUS_TYPE;

extern void READ_UPDATED_SAMPLING_MESSAGE(
    /* in  */ SAMPLING_PORT_ID_TYPE  SAMPLING_PORT_ID,
    /* in  */ MESSAGE_ADDR_TYPE      MESSAGE_ADDR, /* the message is written there */
    /* out */ MESSAGE_SIZE_TYPE     *LENGTH,
    /* out */ UPDATED_TYPE          *UPDATED,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

extern void GET_SAMPLING_PORT_CURRENT_STATUS(
    /* in  */ SAMPLING_PORT_ID_TYPE              SAMPLING_PORT_ID,
    /* out */ SAMPLING_PORT_CURRENT_STATUS_TYPE *SAMPLING_PORT_CURRENT_STATUS,
    /* out */ RETURN_CODE_TYPE                  *RETURN_CODE);

extern void READ_SAMPLING_MESSAGE_CONDITIONAL(
    /* in  */ SAMPLING_PORT_ID_TYPE  SAMPLING_PORT_ID,
    /* in  */ SYSTEM_TIME_TYPE       REF_TIME_STAMP,
    /* in  */ MESSAGE_ADDR_TYPE      MESSAGE_ADDR, /* the message is written there */
    /* out */ MESSAGE_SIZE_TYPE     *LENGTH,
    /* out */ SYSTEM_TIME_TYPE      *TIME_STAMP,
    /* out */ RETURN_CODE_TYPE      *RETURN_CODE);

/* ---- Beside the standard ----------------------------------------------------------------------------------------------- */

/* Joins PARTITION of the system file SYSTEM; NULL for either means its environment variable. NO_ERROR; NO_ACTION if this
 * program has joined before; INVALID_CONFIG if it can't, for the reason that busway_apex_error gives. */
extern RETURN_CODE_TYPE busway_apex_join(const char *SYSTEM, const char *PARTITION);

/* Why joining failed last: UTF-8, lines separated by newlines; empty if it did not. Stays valid, never NULL. */
extern const char *busway_apex_error(void);

/* With which priority the calling thread waits at queuing ports of the discipline PRIORITY: larger is sooner, 0 at first. */
extern void busway_apex_set_priority(APEX_INTEGER PRIORITY_VALUE);

#ifdef __cplusplus
}
#endif

#endif /* BUSWAY_APEX_H */
