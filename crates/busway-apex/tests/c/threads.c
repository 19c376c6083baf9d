/* Services called from several threads of one program at once, in the partition `sensors`: threads join by their first service,
 * create, write and read a sampling port, and share the messages of a queue. `navigation` feeds it: the same program, told
 * "feed". */
#define _POSIX_C_SOURCE 200112L /* for barriers */

#include <pthread.h>
#include <string.h>

#include <busway/apex.h>

#include "check.h"

#define THREADS 4
#define MESSAGES 400

static APEX_INTEGER seen[MESSAGES];
static APEX_INTEGER created;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Of all threads that create the port at once, one does; the others find it. */
static void create_together(SAMPLING_PORT_ID_TYPE *source)
{
    RETURN_CODE_TYPE code;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1, source, &code);
    CHECK(code == NO_ERROR || code == NO_ACTION);
    pthread_mutex_lock(&lock);
    created += code == NO_ERROR;
    pthread_mutex_unlock(&lock);
    GET_SAMPLING_PORT_ID("ATTITUDE_OUT", source, &code);
    CHECK(code == NO_ERROR);
    CREATE_SAMPLING_PORT("ATTITUDE_BACK", 64, DESTINATION, 1000000000, source + 1, &code);
    GET_SAMPLING_PORT_ID("ATTITUDE_BACK", source + 1, &code);
    CHECK(code == NO_ERROR);
}

/* Every message is one byte, repeated: a torn one shows. */
static void write_and_read(const SAMPLING_PORT_ID_TYPE *ports, APEX_BYTE byte)
{
    APEX_BYTE message[64];
    MESSAGE_SIZE_TYPE length;
    VALIDITY_TYPE validity;
    RETURN_CODE_TYPE code;
    memset(message, byte, sizeof message);
    WRITE_SAMPLING_MESSAGE(ports[0], message, 64, &code);
    CHECK(code == NO_ERROR);
    READ_SAMPLING_MESSAGE(ports[1], message, &length, &validity, &code);
    CHECK(code == NO_ERROR && length == 64);
    CHECK(memcmp(message, message + 1, 63) == 0);
}

static void *receive(void *argument)
{
    SAMPLING_PORT_ID_TYPE ports[2];
    QUEUING_PORT_ID_TYPE command;
    RETURN_CODE_TYPE code;
    create_together(ports);
    CREATE_QUEUING_PORT("COMMAND", 64, 3, DESTINATION, FIFO, &command, &code);
    CHECK(code == NO_ERROR || code == NO_ACTION);
    GET_QUEUING_PORT_ID("COMMAND", &command, &code);
    CHECK(code == NO_ERROR);
    pthread_barrier_wait(argument);
    SET_PARTITION_MODE(NORMAL, &code);
    CHECK(code == NO_ERROR || code == NO_ACTION);
    for (;;) {
        APEX_INTEGER number;
        APEX_BYTE message[64];
        MESSAGE_SIZE_TYPE length;
        RECEIVE_QUEUING_MESSAGE(command, 60000000000LL, message, &length, &code);
        CHECK(code == NO_ERROR && length == sizeof number);
        memcpy(&number, message, sizeof number);
        if (number < 0) {
            return NULL;
        }
        CHECK(number < MESSAGES);
        pthread_mutex_lock(&lock);
        seen[number]++;
        pthread_mutex_unlock(&lock);
        write_and_read(ports, (APEX_BYTE)number);
    }
}

static void feed(void)
{
    QUEUING_PORT_ID_TYPE command;
    RETURN_CODE_TYPE code;
    APEX_INTEGER index;
    CREATE_QUEUING_PORT("COMMAND_OUT", 64, 3, SOURCE, FIFO, &command, &code);
    CHECK(code == NO_ERROR);
    SET_PARTITION_MODE(NORMAL, &code);
    for (index = 0; index < MESSAGES + THREADS; index++) {
        APEX_INTEGER number = index < MESSAGES ? index : -1;
        SEND_QUEUING_MESSAGE(command, (MESSAGE_ADDR_TYPE)&number, sizeof number, 60000000000LL, &code);
        CHECK(code == NO_ERROR);
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    int index;
    if (argc > 1 && strcmp(argv[1], "feed") == 0) {
        feed();
        return 0;
    }
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (index = 0; index < THREADS; index++) {
        CHECK(pthread_create(&threads[index], NULL, receive, &barrier) == 0);
    }
    for (index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(created == 1);
    for (index = 0; index < MESSAGES; index++) {
        CHECK(seen[index] == 1);
    }
    return 0;
}
