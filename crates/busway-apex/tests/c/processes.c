/* A partition as it is written for any ARINC 653 system: main creates ports and processes and ends in NORMAL; a periodic process writes, an
 * aperiodic one reads what comes back and ends the partition. Partition `sensors`, whose ATTITUDE_OUT comes back at ATTITUDE_BACK. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

#define PERIOD_NS 2000000
#define ROUNDS    20

static SAMPLING_PORT_ID_TYPE out, back;
static PROCESS_ID_TYPE writer_id, reader_id, late_id;
static volatile APEX_INTEGER is_late_started;

static void writer(void)
{
    APEX_INTEGER round = 0;
    PROCESS_ID_TYPE me;
    RETURN_CODE_TYPE code;
    GET_MY_ID(&me, &code);
    CHECK(code == NO_ERROR && me == writer_id);
    SUSPEND_SELF(INFINITE_TIME_VALUE, &code);
    CHECK(code == INVALID_MODE);
    for (;;) {
        round++;
        WRITE_SAMPLING_MESSAGE(out, (MESSAGE_ADDR_TYPE)&round, sizeof round, &code);
        CHECK(code == NO_ERROR);
        PERIODIC_WAIT(&code);
        CHECK(code == NO_ERROR);
    }
}

static void late(void)
{
    is_late_started = 1;
    STOP_SELF();
    CHECK(0);
}

static void check_status(void)
{
    PROCESS_STATUS_TYPE status;
    PROCESS_ID_TYPE id;
    RETURN_CODE_TYPE code;
    GET_PROCESS_ID("writer", &id, &code);
    CHECK(code == NO_ERROR && id == writer_id);
    GET_PROCESS_ID("nobody", &id, &code);
    CHECK(code == INVALID_CONFIG);
    GET_PROCESS_STATUS(reader_id, &status, &code);
    CHECK(code == NO_ERROR && status.PROCESS_STATE == RUNNING && status.CURRENT_PRIORITY == 20);
    CHECK(strcmp(status.ATTRIBUTES.NAME, "reader") == 0 && status.DEADLINE_TIME == INFINITE_TIME_VALUE);
    GET_PROCESS_STATUS(99, &status, &code);
    CHECK(code == INVALID_PARAM);
    SET_PRIORITY(reader_id, 30, &code);
    CHECK(code == NO_ERROR);
    GET_PROCESS_STATUS(reader_id, &status, &code);
    CHECK(status.CURRENT_PRIORITY == 30);
    SET_PRIORITY(reader_id, 240, &code);
    CHECK(code == INVALID_PARAM);
    START(writer_id, &code);
    CHECK(code == NO_ACTION);
    PERIODIC_WAIT(&code);
    CHECK(code == INVALID_MODE);
    CREATE_PROCESS(&status.ATTRIBUTES, &id, &code);
    CHECK(code == NO_ACTION);
    strcpy(status.ATTRIBUTES.NAME, "another");
    CREATE_PROCESS(&status.ATTRIBUTES, &id, &code);
    CHECK(code == INVALID_MODE);
}

static void check_lock(void)
{
    LOCK_LEVEL_TYPE level;
    RETURN_CODE_TYPE code;
    UNLOCK_PREEMPTION(&level, &code);
    CHECK(code == NO_ACTION && level == 0);
    LOCK_PREEMPTION(&level, &code);
    CHECK(code == NO_ERROR && level == 1);
    LOCK_PREEMPTION(&level, &code);
    CHECK(code == NO_ERROR && level == 2);
    TIMED_WAIT(1000, &code);
    CHECK(code == INVALID_MODE);
    UNLOCK_PREEMPTION(&level, &code);
    UNLOCK_PREEMPTION(&level, &code);
    CHECK(code == NO_ERROR && level == 0);
}

/* A dormant process is started, and again after it has stopped itself. */
static void check_start_and_stop(void)
{
    PROCESS_STATUS_TYPE status;
    RETURN_CODE_TYPE code;
    int times;
    for (times = 0; times < 300; times++) {
        is_late_started = 0;
        START(late_id, &code);
        CHECK(code == NO_ERROR);
        do {
            TIMED_WAIT(100000, &code);
            CHECK(code == NO_ERROR);
            GET_PROCESS_STATUS(late_id, &status, &code);
        } while (status.PROCESS_STATE != DORMANT);
        CHECK(is_late_started);
    }
    STOP(late_id, &code);
    CHECK(code == NO_ACTION);
    SUSPEND_SELF(1000000, &code);
    CHECK(code == TIMED_OUT);
    STOP(writer_id, &code);
    CHECK(code == NO_ERROR);
    GET_PROCESS_STATUS(writer_id, &status, &code);
    CHECK(status.PROCESS_STATE == DORMANT);
}

static void reader(void)
{
    APEX_INTEGER seen = 0;
    RETURN_CODE_TYPE code;
    check_status();
    check_lock();
    while (seen < ROUNDS) {
        APEX_BYTE message[64];
        MESSAGE_SIZE_TYPE length;
        VALIDITY_TYPE validity;
        APEX_INTEGER number;
        READ_SAMPLING_MESSAGE(back, message, &length, &validity, &code);
        if (code == NO_ERROR) {
            memcpy(&number, message, sizeof number);
            CHECK(number >= seen);
            seen = number;
        }
        TIMED_WAIT(PERIOD_NS / 4, &code);
        CHECK(code == NO_ERROR);
    }
    check_start_and_stop();
    printf("read %d rounds\n", ROUNDS);
    SET_PARTITION_MODE(IDLE, &code);
    CHECK(0);
}

static PROCESS_ID_TYPE create(const char *name, SYSTEM_ADDRESS_TYPE entry_point, SYSTEM_TIME_TYPE period, PRIORITY_TYPE priority)
{
    PROCESS_ATTRIBUTE_TYPE attributes;
    PROCESS_ID_TYPE id;
    RETURN_CODE_TYPE code;
    memset(&attributes, 0, sizeof attributes);
    strcpy(attributes.NAME, name);
    attributes.ENTRY_POINT = entry_point;
    attributes.PERIOD = period;
    attributes.TIME_CAPACITY = period;
    attributes.STACK_SIZE = 16384;
    attributes.BASE_PRIORITY = priority;
    attributes.DEADLINE = SOFT;
    CREATE_PROCESS(&attributes, &id, &code);
    CHECK(code == NO_ERROR);
    CREATE_PROCESS(&attributes, &id, &code);
    CHECK(code == NO_ACTION);
    GET_PROCESS_ID(name, &id, &code);
    CHECK(code == NO_ERROR);
    strcpy(attributes.NAME, "wrong");
    attributes.BASE_PRIORITY = 0;
    CREATE_PROCESS(&attributes, &id, &code);
    CHECK(code == INVALID_PARAM);
    GET_PROCESS_ID(name, &id, &code);
    return id;
}

int main(void)
{
    RETURN_CODE_TYPE code;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1000000, &out, &code);
    CHECK(code == NO_ERROR);
    CREATE_SAMPLING_PORT("ATTITUDE_BACK", 64, DESTINATION, 1000000000, &back, &code);
    CHECK(code == NO_ERROR);
    writer_id = create("writer", writer, PERIOD_NS, 10);
    reader_id = create("reader", reader, INFINITE_TIME_VALUE, 20);
    late_id = create("late", late, INFINITE_TIME_VALUE, 5);
    START(writer_id, &code);
    CHECK(code == NO_ERROR);
    START(writer_id, &code);
    CHECK(code == NO_ACTION);
    DELAYED_START(reader_id, 1000000, &code);
    CHECK(code == NO_ERROR);
    SET_PARTITION_MODE(NORMAL, &code);
    CHECK(0);
    return 0;
}
