/* cli_version.c: `denpyo version`: what runs here, for bug reports. */
#include <jansson.h>
#include <libpq-fe.h>
#include <stdio.h>

#include "denpyo/cli.h"
#include "denpyo/kafka.h"

int cli_version(int argc, char **argv) {
    if (argc > 0) {
        struct fault f;
        fault_set(&f, FAULT_USAGE, "UNKNOWN_WORD", "version takes no \"%s\"", argv[0]);
        return cli_fail(&f);
    }
    int libpq = PQlibVersion();
    printf("denpyo %s\nlibpq %d.%d\nlibrdkafka %s\njansson %s\n", DENPYO_VERSION, libpq / 10000, libpq % 10000,
           kafka_library_version(), jansson_version_str());
    return CLI_OK;
}
