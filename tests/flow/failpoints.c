/* failpoints.c: the entry of denpyo-failpoints, denpyo that dies where a test wants it. */
#include <stdlib.h>
#include <string.h>

#include "denpyo/cli.h"
#include "denpyo/failpoint.h"

#define VARIABLE "DENPYO_FAILPOINT"

int main(int argc, char **argv) {
    struct fault f = {0};
    const char *order = getenv(VARIABLE);
    if (order != NULL && strcmp(order, "list") == 0) {
        failpoint_print(stdout);
        return CLI_OK;
    }
    if (order != NULL && !failpoint_order(order, &f))
        return cli_fail(&f);
    bool counts = order != NULL && strcmp(order, "count") == 0;
    unsetenv(VARIABLE); /* denpyo would refuse it as an option that it does not know */
    int code = cli_main(argc, argv);
    if (counts)
        failpoint_print(stderr);
    return code;
}
