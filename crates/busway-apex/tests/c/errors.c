/* The error handler, and what becomes of a program without one (told "without"). Partition `sensors`. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

static PROCESS_ID_TYPE failing_id;
static volatile APEX_INTEGER handled;

static void handler(void)
{
    ERROR_STATUS_TYPE status;
    RETURN_CODE_TYPE code;
    GET_ERROR_STATUS(&status, &code);
    CHECK(code == NO_ERROR && status.ERROR_CODE == APPLICATION_ERROR && status.LENGTH == 5);
    CHECK(status.FAILED_PROCESS_ID == failing_id && memcmp(status.MESSAGE, "wrong", 5) == 0);
    GET_ERROR_STATUS(&status, &code);
    CHECK(code == NO_ACTION);
    handled++;
    if (handled == 2) {
        STOP(status.FAILED_PROCESS_ID, &code);
        CHECK(code == NO_ERROR);
    }
    STOP_SELF();
    CHECK(0);
}

static void failing(void)
{
    RETURN_CODE_TYPE code;
    REPORT_APPLICATION_MESSAGE((MESSAGE_ADDR_TYPE)"at work", 7, &code);
    CHECK(code == NO_ERROR);
    RAISE_APPLICATION_ERROR(POWER_FAIL, (MESSAGE_ADDR_TYPE)"wrong", 5, &code);
    CHECK(code == INVALID_PARAM);
    RAISE_APPLICATION_ERROR(APPLICATION_ERROR, (MESSAGE_ADDR_TYPE)"wrong", 5, &code);
    CHECK(code == NO_ERROR && handled == 1);
    RAISE_APPLICATION_ERROR(APPLICATION_ERROR, (MESSAGE_ADDR_TYPE)"wrong", 5, &code);
    CHECK(0);
}

static void watching(void)
{
    PROCESS_STATUS_TYPE status;
    RETURN_CODE_TYPE code;
    do {
        TIMED_WAIT(1000000, &code);
        GET_PROCESS_STATUS(failing_id, &status, &code);
    } while (status.PROCESS_STATE != DORMANT);
    CHECK(handled == 2);
    SET_PARTITION_MODE(IDLE, &code);
}

static PROCESS_ID_TYPE start(const char *name, SYSTEM_ADDRESS_TYPE entry_point)
{
    PROCESS_ATTRIBUTE_TYPE attributes;
    PROCESS_ID_TYPE id;
    RETURN_CODE_TYPE code;
    memset(&attributes, 0, sizeof attributes);
    strcpy(attributes.NAME, name);
    attributes.ENTRY_POINT = entry_point;
    attributes.PERIOD = INFINITE_TIME_VALUE;
    attributes.TIME_CAPACITY = INFINITE_TIME_VALUE;
    attributes.BASE_PRIORITY = 1;
    CREATE_PROCESS(&attributes, &id, &code);
    CHECK(code == NO_ERROR);
    START(id, &code);
    CHECK(code == NO_ERROR);
    return id;
}

int main(int argc, char **argv)
{
    RETURN_CODE_TYPE code;
    ERROR_STATUS_TYPE status;
    (void)argv;
    GET_ERROR_STATUS(&status, &code);
    CHECK(code == INVALID_CONFIG);
    if (argc == 1) {
        CREATE_ERROR_HANDLER(handler, 16384, &code);
        CHECK(code == NO_ERROR);
        CREATE_ERROR_HANDLER(handler, 16384, &code);
        CHECK(code == NO_ACTION);
    }
    failing_id = start("failing", failing);
    start("watching", watching);
    SET_PARTITION_MODE(NORMAL, &code);
    return 1;
}
