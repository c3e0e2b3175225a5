/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-perf links: measures the links between hosts. */
#ifndef DICOMM_PERFTEST_LINKS_LINKS_H
#define DICOMM_PERFTEST_LINKS_LINKS_H

/* With the arguments behind "links" in argv[1]; the exit status. child_rank: as
 * launch_child() said. */
int links_main(int argc, char **argv, int child_rank);

#endif
