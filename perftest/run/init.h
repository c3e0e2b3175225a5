/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-perf init: measures how long communicators take to make and end. */
#ifndef DICOMM_PERFTEST_RUN_INIT_H
#define DICOMM_PERFTEST_RUN_INIT_H

/* Runs with the arguments after "init" in argv[1]. Returns the exit status.
 * child_rank is the result of launch_child(). */
int init_main(int argc, char **argv, int child_rank);

#endif
