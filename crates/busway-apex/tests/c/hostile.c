/* What only C can get wrong, in the partition `sensors`: null pointers, names without an end, values out of range. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

static APEX_BYTE area[64];
static MESSAGE_SIZE_TYPE length;
static RETURN_CODE_TYPE code;

/* An enumeration's value that it has no name for, as a program with a wrong cast passes it. */
#define OUT_OF_RANGE(type) ((type)77)

static void names(void)
{
    /* 32 bytes that do not end, and behind them a byte that no service may take for a part. */
    struct {
        SAMPLING_PORT_NAME_TYPE name;
        char behind;
    } unterminated;
    SAMPLING_PORT_ID_TYPE id = 5;
    memset(&unterminated, 'N', sizeof unterminated);
    GET_SAMPLING_PORT_ID(unterminated.name, &id, &code);
    CHECK(code == INVALID_CONFIG && id == 0);
    CREATE_SAMPLING_PORT(unterminated.name, 64, SOURCE, 1, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_SAMPLING_PORT(NULL, 64, SOURCE, 1, &id, &code);
    CHECK(code == INVALID_CONFIG);
    GET_QUEUING_PORT_ID(NULL, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_QUEUING_PORT("", 64, 3, DESTINATION, FIFO, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_SAMPLING_PORT("\xff\xfe", 64, SOURCE, 1, &id, &code);
    CHECK(code == INVALID_CONFIG);
}

static void creation(void)
{
    APEX_INTEGER id;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, OUT_OF_RANGE(PORT_DIRECTION_TYPE), 1, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", -64, SOURCE, 1, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_QUEUING_PORT("COMMAND", 64, 3, DESTINATION, OUT_OF_RANGE(QUEUING_DISCIPLINE_TYPE), &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_QUEUING_PORT("COMMAND", 64, -3, DESTINATION, FIFO, &id, &code);
    CHECK(code == INVALID_CONFIG);
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1, NULL, &code);
    CHECK(code == INVALID_PARAM);
    /* Nothing was created by all that. */
    GET_SAMPLING_PORT_ID("ATTITUDE_OUT", &id, &code);
    CHECK(code == INVALID_CONFIG);
}

static void sampling(void)
{
    SAMPLING_PORT_ID_TYPE source, destination;
    VALIDITY_TYPE validity;
    UPDATED_TYPE updated;
    SYSTEM_TIME_TYPE stamp;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1, &source, &code);
    CHECK(code == NO_ERROR);
    CREATE_SAMPLING_PORT("ATTITUDE_BACK", 64, DESTINATION, 1000000000, &destination, &code);
    CHECK(code == NO_ERROR);
    WRITE_SAMPLING_MESSAGE(source, NULL, 8, &code);
    CHECK(code == INVALID_PARAM);
    WRITE_SAMPLING_MESSAGE(source, area, -1, &code);
    CHECK(code == INVALID_PARAM);
    WRITE_SAMPLING_MESSAGE(source, area, 2147483647, &code);
    CHECK(code == INVALID_CONFIG);
    WRITE_SAMPLING_MESSAGE(99, area, 2147483647, &code);
    CHECK(code == INVALID_PARAM);
    length = 9;
    validity = VALID;
    READ_SAMPLING_MESSAGE(destination, area, &length, &validity, &code);
    CHECK(code == NO_ACTION && length == 0 && validity == INVALID);
    WRITE_SAMPLING_MESSAGE(source, area, 64, &code);
    CHECK(code == NO_ERROR);
    READ_SAMPLING_MESSAGE(destination, NULL, &length, &validity, &code);
    CHECK(code == INVALID_PARAM);
    READ_SAMPLING_MESSAGE(destination, area, NULL, &validity, &code);
    CHECK(code == INVALID_PARAM);
    READ_SAMPLING_MESSAGE(destination, area, &length, NULL, &code);
    CHECK(code == INVALID_PARAM);
    READ_UPDATED_SAMPLING_MESSAGE(destination, area, &length, NULL, &code);
    CHECK(code == INVALID_PARAM);
    READ_SAMPLING_MESSAGE_CONDITIONAL(destination, 0, area, &length, NULL, &code);
    CHECK(code == INVALID_PARAM);
    GET_SAMPLING_PORT_STATUS(destination, NULL, &code);
    CHECK(code == INVALID_PARAM);
    GET_SAMPLING_PORT_CURRENT_STATUS(destination, NULL, &code);
    CHECK(code == INVALID_PARAM);
    READ_SAMPLING_MESSAGE_CONDITIONAL(destination, 0, NULL, &length, &stamp, &code);
    CHECK(code == INVALID_PARAM);
    /* None of them has consumed the message. */
    READ_UPDATED_SAMPLING_MESSAGE(destination, area, &length, &updated, &code);
    CHECK(code == NO_ERROR && length == 64 && updated == NEW_MESSAGE);
}

static void queuing(void)
{
    QUEUING_PORT_ID_TYPE source, destination;
    CREATE_QUEUING_PORT("ALARM_OUT", 64, 3, SOURCE, FIFO, &source, &code);
    CHECK(code == NO_ERROR);
    CREATE_QUEUING_PORT("COMMAND", 64, 3, DESTINATION, FIFO, &destination, &code);
    CHECK(code == NO_ERROR);
    SEND_QUEUING_MESSAGE(source, NULL, 8, 0, &code);
    CHECK(code == INVALID_PARAM);
    SEND_QUEUING_MESSAGE(source, area, -8, 0, &code);
    CHECK(code == INVALID_PARAM);
    SEND_QUEUING_MESSAGE(source, area, 65, -2, &code);
    CHECK(code == INVALID_PARAM);
    SEND_QUEUING_MESSAGE(source, area, 65, 0, &code);
    CHECK(code == INVALID_CONFIG);
    RECEIVE_QUEUING_MESSAGE(destination, 0, area, NULL, &code);
    CHECK(code == INVALID_PARAM);
    RECEIVE_QUEUING_MESSAGE(destination, 0, NULL, &length, &code);
    CHECK(code == INVALID_PARAM);
    length = 9;
    RECEIVE_QUEUING_MESSAGE(destination, 0, area, &length, &code);
    CHECK(code == NOT_AVAILABLE && length == 0);
    GET_QUEUING_PORT_STATUS(destination, NULL, &code);
    CHECK(code == INVALID_PARAM);
}

static void partition(void)
{
    PARTITION_STATUS_TYPE status;
    SYSTEM_TIME_TYPE before, after;
    SET_PARTITION_MODE(OUT_OF_RANGE(OPERATING_MODE_TYPE), &code);
    CHECK(code == INVALID_PARAM);
    GET_PARTITION_STATUS(NULL, &code);
    CHECK(code == INVALID_PARAM);
    GET_TIME(NULL, &code);
    CHECK(code == INVALID_PARAM);
    TIMED_WAIT(INFINITE_TIME_VALUE, &code);
    CHECK(code == INVALID_PARAM);
    GET_TIME(&before, &code);
    TIMED_WAIT(1000000, &code);
    CHECK(code == NO_ERROR);
    GET_TIME(&after, &code);
    CHECK(after - before >= 1000000);
    /* A return code that nobody wants is written nowhere. */
    SET_PARTITION_MODE(NORMAL, NULL);
    GET_PARTITION_STATUS(&status, NULL);
    CHECK(status.OPERATING_MODE == NORMAL && status.IDENTIFIER == 1 && status.PERIOD == INFINITE_TIME_VALUE);
    CHECK(status.LOCK_LEVEL == 0 && status.NUM_ASSIGNED_CORES >= 1);
}

int main(void)
{
    names();
    creation();
    sampling();
    queuing();
    partition();
    return 0;
}
