/* SPDX-License-Identifier: BSD-3-Clause */
/* A cluster file from what was found on hosts, not typed. */
#ifndef DICOMM_PLANNER_INPUT_DETECT_H
#define DICOMM_PLANNER_INPUT_DETECT_H

#include <jansson.h>

/*
 * From files of `dicomm-info --topo`, one of each host, and, unless it is NULL,
 * the file of `dicomm-perf links --save`, whose rates and islands count where
 * it has a node of the same name. Devices become types by what they are called;
 * a host without any has its cores. NULL after a message.
 */
json_t *detect_cluster(char *const *hosts, int n, const char *links);

#endif
