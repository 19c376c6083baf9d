/* Joins what the arguments name, SYSTEM and PARTITION, with "-" for the environment; without arguments, by the first service.
 * Prints the return code of joining and of two services, and the error's text. */
#include <string.h>

#include <busway/apex.h>

#include "check.h"

static const char *argument(const char *word)
{
    return strcmp(word, "-") == 0 ? NULL : word;
}

int main(int argc, char **argv)
{
    SAMPLING_PORT_ID_TYPE id;
    RETURN_CODE_TYPE code;
    int index;
    for (index = 1; index + 1 < argc; index += 2) {
        printf("join %d\n", (int)busway_apex_join(argument(argv[index]), argument(argv[index + 1])));
    }
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1, &id, &code);
    printf("create %d\n", (int)code);
    SET_PARTITION_MODE(NORMAL, &code);
    printf("mode %d\n", (int)code);
    printf("error %s\n", busway_apex_error());
    return 0;
}
