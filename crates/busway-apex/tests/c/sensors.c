/* A partition as it is written for any ARINC 653 system: the peer of navigation.c. Writes attitudes, waits for a command on each. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

#define ROUNDS 100

int main(void)
{
    SAMPLING_PORT_ID_TYPE attitude;
    QUEUING_PORT_ID_TYPE command;
    QUEUING_PORT_STATUS_TYPE status;
    RETURN_CODE_TYPE code;
    APEX_INTEGER round;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1000000, &attitude, &code);
    CHECK(code == NO_ERROR);
    CREATE_QUEUING_PORT("COMMAND", 64, 3, DESTINATION, FIFO, &command, &code);
    CHECK(code == NO_ERROR);
    SET_PARTITION_MODE(NORMAL, &code);
    CHECK(code == NO_ERROR);
    for (round = 0; round < ROUNDS; round++) {
        APEX_BYTE message[64];
        MESSAGE_SIZE_TYPE length;
        WRITE_SAMPLING_MESSAGE(attitude, (MESSAGE_ADDR_TYPE)&round, sizeof round, &code);
        CHECK(code == NO_ERROR);
        RECEIVE_QUEUING_MESSAGE(command, 60000000000LL, message, &length, &code);
        CHECK(code == NO_ERROR && length == sizeof round);
        CHECK(memcmp(message, &round, sizeof round) == 0);
    }
    GET_QUEUING_PORT_STATUS(command, &status, &code);
    CHECK(code == NO_ERROR && status.NB_MESSAGE == 0 && status.MAX_NB_MESSAGE == 3);
    return 0;
}
