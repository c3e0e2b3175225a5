/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-perf simulate: predicted times on a cluster that nobody has at hand.
 */
#ifndef DICOMM_PERFTEST_LINKS_SIMULATE_H
#define DICOMM_PERFTEST_LINKS_SIMULATE_H

/* With the arguments behind "simulate" in argv[1]; the exit status. */
int simulate_main(int argc, char **argv, int child_rank);

#endif
