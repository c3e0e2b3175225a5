/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts, binds and ends ranks as processes of this machine. */
#ifndef DICOMM_PERFTEST_BASE_LAUNCH_H
#define DICOMM_PERFTEST_BASE_LAUNCH_H

#include <stdbool.h>

/*
 * Starts `ranks` processes of this program with the same arguments and waits
 * for all. They find each other by DICOMM_RANK and similar variables. If one
 * fails, this ends the others, and returns its exit status (128 + signal if a
 * signal killed it). No process outlives this one. Must not be called after a
 * call to the library.
 */
int launch_processes(int ranks, char **argv);

/* Returns the rank if launch_processes() has started this process, and removes
 * the mark from argv. Otherwise returns -1. */
int launch_child(int *argc, char **argv);

/* Binds the calling thread (and threads that it starts) to the cores of local
 * ranks first ... first + n - 1, among the cores that the process may use.
 * Returns -1 and sets errno on failure. */
int launch_bind(int first, int n);

#endif
