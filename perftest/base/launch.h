/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes on this machine: starts them, binds them, ends them. */
#ifndef DICOMM_PERFTEST_BASE_LAUNCH_H
#define DICOMM_PERFTEST_BASE_LAUNCH_H

#include <stdbool.h>

/*
 * Start `ranks` processes of this program with the same arguments, which find
 * each other by DICOMM_RANK and its kin, and wait for all. The first that
 * fails ends the others, and its exit status (128 + signal if one killed it) is
 * returned. Nothing outlives this process. Not to be called after the library.
 */
int launch_processes(int ranks, char **argv);

/* Was this process started by launch_processes()? Then forget the mark in
 * argv; the rank there, else -1. */
int launch_child(int *argc, char **argv);

/* Bind the calling thread (and those that it starts) to the cores of local
 * ranks first ... first + n - 1, of those that the process may use. -1 with
 * errno. */
int launch_bind(int first, int n);

#endif
