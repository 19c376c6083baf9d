/* A process of a partition that does what it is told: one service a line on standard input, one line of reply. The language is
 * that of crates/busway-port/examples/shared/script.rs; the partition is the environment's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <busway/apex.h>

enum { LINE_CHARS = 16384, LONGEST_BYTES = 4096, MAX_WORDS = 8 };

static char *words[MAX_WORDS];
static APEX_BYTE message[LINE_CHARS];
static MESSAGE_SIZE_TYPE length;
static RETURN_CODE_TYPE code;

static const char *code_name(void)
{
    static const char *const names[] = {"NO_ERROR",       "NO_ACTION",    "NOT_AVAILABLE", "INVALID_PARAM",
                                        "INVALID_CONFIG", "INVALID_MODE", "TIMED_OUT"};
    return names[code];
}

static int is(const char *word, const char *wanted)
{
    return word != NULL && strcmp(word, wanted) == 0;
}

static long long number(int word)
{
    return words[word] == NULL ? 0 : strtoll(words[word], NULL, 10);
}

static PORT_DIRECTION_TYPE direction(int word)
{
    return is(words[word], "source") ? SOURCE : DESTINATION;
}

static const char *direction_name(PORT_DIRECTION_TYPE value)
{
    return value == SOURCE ? "source" : "destination";
}

/* The port that the second word names, or its identifier after '#'. */
static APEX_INTEGER port(void (*find)(const char *, APEX_INTEGER *, RETURN_CODE_TYPE *))
{
    APEX_INTEGER id = 0;
    RETURN_CODE_TYPE ignored;
    if (words[1][0] == '#') {
        return (APEX_INTEGER)strtol(words[1] + 1, NULL, 10);
    }
    find(words[1], &id, &ignored);
    return id;
}

/* The word as bytes in `message` and `length`; "-" is no bytes. */
static void parse_message(int word)
{
    const char *digits = words[word];
    length = 0;
    while (digits[0] != '-' && digits[0] != '\0') {
        char pair[3] = {digits[0], digits[1], '\0'};
        message[length++] = (APEX_BYTE)strtoul(pair, NULL, 16);
        digits += 2;
    }
}

static void print_message(void)
{
    MESSAGE_SIZE_TYPE index;
    if (length == 0) {
        printf("-");
    }
    for (index = 0; index < length; index++) {
        printf("%02x", message[index]);
    }
}

static void create_sampling(void)
{
    SAMPLING_PORT_ID_TYPE id;
    CREATE_SAMPLING_PORT(words[1], (MESSAGE_SIZE_TYPE)number(2), direction(3), number(4), &id, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %d", id);
    }
}

static void write_sampling(void)
{
    parse_message(2);
    WRITE_SAMPLING_MESSAGE(port(GET_SAMPLING_PORT_ID), message, length, &code);
    printf("%s", code_name());
}

static void read_sampling(void)
{
    VALIDITY_TYPE validity;
    READ_SAMPLING_MESSAGE(port(GET_SAMPLING_PORT_ID), message, &length, &validity, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %s ", validity == VALID ? "Valid" : "Invalid");
        print_message();
    }
}

static const char *updated_name(UPDATED_TYPE updated)
{
    static const char *const names[] = {"EmptyPort", "ConsumedMessage", "NewMessage"};
    return names[updated];
}

static void read_updated(void)
{
    UPDATED_TYPE updated;
    READ_UPDATED_SAMPLING_MESSAGE(port(GET_SAMPLING_PORT_ID), message, &length, &updated, &code);
    printf("%s", code_name());
    if (code == NO_ERROR || code == NO_ACTION) {
        printf(" %s ", updated_name(updated));
        print_message();
    }
}

static void read_conditional(void)
{
    SYSTEM_TIME_TYPE stamp;
    READ_SAMPLING_MESSAGE_CONDITIONAL(port(GET_SAMPLING_PORT_ID), number(2), message, &length, &stamp, &code);
    printf("%s", code_name());
    if (code == NO_ERROR || code == NO_ACTION) {
        printf(" %lld ", stamp);
        print_message();
    }
}

static void sampling_status(void)
{
    SAMPLING_PORT_STATUS_TYPE status;
    GET_SAMPLING_PORT_STATUS(port(GET_SAMPLING_PORT_ID), &status, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %lld %d %s %s", status.REFRESH_PERIOD, status.MAX_MESSAGE_SIZE, direction_name(status.PORT_DIRECTION),
               status.LAST_MSG_VALIDITY == VALID ? "Valid" : "Invalid");
    }
}

static void current_status(void)
{
    SAMPLING_PORT_CURRENT_STATUS_TYPE status;
    GET_SAMPLING_PORT_CURRENT_STATUS(port(GET_SAMPLING_PORT_ID), &status, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %lld %lld %d %s %s %s", status.REFRESH_PERIOD, status.TIME_STAMP, status.MAX_MESSAGE_SIZE,
               direction_name(status.PORT_DIRECTION), status.MESSAGE_AGE == FRESH ? "Fresh" : "Stale",
               updated_name(status.UPDATED));
    }
}

static void create_queuing(void)
{
    QUEUING_PORT_ID_TYPE id;
    CREATE_QUEUING_PORT(words[1], (MESSAGE_SIZE_TYPE)number(2), (MESSAGE_RANGE_TYPE)number(3), direction(4),
                        is(words[5], "priority") ? PRIORITY : FIFO, &id, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %d", id);
    }
}

static void send_queuing(void)
{
    parse_message(2);
    SEND_QUEUING_MESSAGE(port(GET_QUEUING_PORT_ID), message, length, number(3), &code);
    printf("%s", code_name());
}

static void receive_queuing(void)
{
    RECEIVE_QUEUING_MESSAGE(port(GET_QUEUING_PORT_ID), number(2), message, &length, &code);
    printf("%s", code_name());
    if (length > 0) {
        printf(" ");
        print_message();
    }
}

static void clear_queuing(void)
{
    CLEAR_QUEUING_PORT(port(GET_QUEUING_PORT_ID), &code);
    printf("%s", code_name());
}

static void queuing_status(void)
{
    QUEUING_PORT_STATUS_TYPE status;
    GET_QUEUING_PORT_STATUS(port(GET_QUEUING_PORT_ID), &status, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %d %d %d %s %d", status.NB_MESSAGE, status.MAX_NB_MESSAGE, status.MAX_MESSAGE_SIZE,
               direction_name(status.PORT_DIRECTION), status.WAITING_PROCESSES);
    }
}

static void sampling_id(void)
{
    SAMPLING_PORT_ID_TYPE id;
    GET_SAMPLING_PORT_ID(words[1], &id, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %d", id);
    }
}

static void queuing_id(void)
{
    QUEUING_PORT_ID_TYPE id;
    GET_QUEUING_PORT_ID(words[1], &id, &code);
    printf("%s", code_name());
    if (code == NO_ERROR) {
        printf(" %d", id);
    }
}

static void partition_status(void)
{
    static const char *const modes[] = {"Idle", "ColdStart", "WarmStart", "Normal"};
    PARTITION_STATUS_TYPE status;
    GET_PARTITION_STATUS(&status, &code);
    printf("%s %d %s %s", code_name(), status.IDENTIFIER, modes[status.OPERATING_MODE],
           status.START_CONDITION == PARTITION_RESTART ? "true" : "false");
}

static void set_mode(void)
{
    SET_PARTITION_MODE(is(words[1], "idle")   ? IDLE
                       : is(words[1], "cold") ? COLD_START
                       : is(words[1], "warm") ? WARM_START
                                              : NORMAL,
                       &code);
    printf("%s", code_name());
}

static void set_priority(void)
{
    busway_apex_set_priority((APEX_INTEGER)number(1));
    printf("NO_ERROR");
}

static void print_time(void)
{
    SYSTEM_TIME_TYPE now;
    GET_TIME(&now, &code);
    printf("%s %lld", code_name(), now);
}

static const struct {
    const char *name;
    void (*service)(void);
} services[] = {
    {"create-sampling", create_sampling},
    {"write", write_sampling},
    {"read", read_sampling},
    {"read-updated", read_updated},
    {"read-conditional", read_conditional},
    {"sampling-id", sampling_id},
    {"sampling-status", sampling_status},
    {"current-status", current_status},
    {"create-queuing", create_queuing},
    {"send", send_queuing},
    {"receive", receive_queuing},
    {"clear", clear_queuing},
    {"queuing-id", queuing_id},
    {"queuing-status", queuing_status},
    {"partition-status", partition_status},
    {"set-mode", set_mode},
    {"set-priority", set_priority},
    {"time", print_time},
};

static int serve(char *line)
{
    size_t index;
    int count = 0;
    char *word = strtok(line, " \n");
    memset(words, 0, sizeof words);
    while (word != NULL && count < MAX_WORDS) {
        words[count++] = word;
        word = strtok(NULL, " \n");
    }
    for (index = 0; index < sizeof services / sizeof services[0]; index++) {
        if (is(words[0], services[index].name)) {
            services[index].service();
            printf("\n");
            fflush(stdout);
            return 1;
        }
    }
    fprintf(stderr, "not understood: %s\n", words[0] == NULL ? "" : words[0]);
    return 0;
}

int main(void)
{
    static char line[LINE_CHARS];
    PARTITION_ID_TYPE id;
    GET_MY_PARTITION_ID(&id, &code);
    if (code != NO_ERROR) {
        return EXIT_FAILURE;
    }
    printf("joined\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!serve(line)) {
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}
