/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-perf links: measures the links between hosts. */
#ifndef DICOMM_PERFTEST_LINKS_LINKS_H
#define DICOMM_PERFTEST_LINKS_LINKS_H

/* Runs with the arguments after "links" in argv[1]. Returns the exit status.
 * child_rank is the result of launch_child(). */
int links_main(int argc, char **argv, int child_rank);

#endif
