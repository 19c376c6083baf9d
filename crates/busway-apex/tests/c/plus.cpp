// The header in C++: names of ports are literals, services have C linkage.
#include <busway/apex.h>

int main()
{
    SAMPLING_PORT_ID_TYPE id;
    RETURN_CODE_TYPE code;
    CREATE_SAMPLING_PORT("ATTITUDE_OUT", 64, SOURCE, 1000000, &id, &code);
    if (code != NO_ERROR) {
        return 1;
    }
    APEX_BYTE message[] = {1, 2, 3};
    WRITE_SAMPLING_MESSAGE(id, message, sizeof message, &code);
    return code == NO_ERROR ? 0 : 1;
}
