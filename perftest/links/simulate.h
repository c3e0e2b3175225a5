/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dicomm-perf simulate: predicted times on a cluster from its description.
 */
#ifndef DICOMM_PERFTEST_LINKS_SIMULATE_H
#define DICOMM_PERFTEST_LINKS_SIMULATE_H

/* Runs with the arguments after "simulate" in argv[1]. Returns the exit
 * status. */
int simulate_main(int argc, char **argv, int child_rank);

#endif
