/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks the processes of this machine what they do. Each process that uses the
 * library listens at a socket with an abstract name (docs/wire.md), and whoever
 * connects gets its answer, if the user is the same, or root.
 */
#ifndef DICOMM_PERFTEST_ASK_H
#define DICOMM_PERFTEST_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

/* pid 0: all processes of this user. Adds to the array `answers` what they
 * answer, with "pid" as this process sees it (0: it does not), and to `silent`
 * an object {pid, program, why} for each that cannot be asked or does not
 * answer. Returns false, after saying why, if there is no such process or it is
 * not to be asked. */
bool ask_all(pid_t pid, json_t *answers, json_t *silent);

/* Reads an answer; NULL: it is not JSON. Changes bytes that are not UTF-8, as
 * names may have them. */
json_t *ask_read(char *text, size_t len);

#endif
