// The checks of the tests.
#ifndef DWELL_TESTS_CHECK_H
#define DWELL_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)
#define CHECK_OK(call) CHECK((call) == DWELL_OK)

#endif
