/* main.c: the process's entry; everything else is in the library that the tests link too. */
#include "denpyo/cli.h"

int main(int argc, char **argv) {
    return cli_main(argc, argv);
}
