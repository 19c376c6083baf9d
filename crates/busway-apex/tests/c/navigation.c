/* A partition as it is written for any ARINC 653 system: the peer of sensors.c. Answers each attitude with a command. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

#define ROUNDS 100

static SAMPLING_PORT_ID_TYPE attitude;
static QUEUING_PORT_ID_TYPE command;

static void initialise(void)
{
    SAMPLING_PORT_NAME_TYPE name = "ATTITUDE";
    RETURN_CODE_TYPE code;
    CREATE_SAMPLING_PORT(name, 64, DESTINATION, 10000000000LL, &attitude, &code);
    CHECK(code == NO_ERROR);
    CREATE_QUEUING_PORT("COMMAND_OUT", 64, 3, SOURCE, FIFO, &command, &code);
    CHECK(code == NO_ERROR);
    SET_PARTITION_MODE(NORMAL, &code);
    CHECK(code == NO_ERROR);
}

int main(void)
{
    APEX_INTEGER expected = 0;
    initialise();
    while (expected < ROUNDS) {
        APEX_BYTE message[64];
        MESSAGE_SIZE_TYPE length;
        VALIDITY_TYPE validity;
        RETURN_CODE_TYPE code;
        APEX_INTEGER number;
        READ_SAMPLING_MESSAGE(attitude, message, &length, &validity, &code);
        if (code == NO_ERROR) {
            CHECK(length == sizeof number && validity == VALID);
            memcpy(&number, message, sizeof number);
            CHECK(number == expected || number == expected - 1);
        }
        if (code != NO_ERROR || number != expected) {
            CHECK(code == NO_ERROR || code == NO_ACTION);
            TIMED_WAIT(0, &code);
            continue;
        }
        SEND_QUEUING_MESSAGE(command, (MESSAGE_ADDR_TYPE)&number, sizeof number, INFINITE_TIME_VALUE, &code);
        CHECK(code == NO_ERROR);
        expected++;
    }
    return 0;
}
