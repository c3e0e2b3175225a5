/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this process answers to dicomm-info --job: the state of each of its
 * communicators. The control thread writes it. It takes only locks that no
 * thread holds while it waits, and reads what the data path stores anyway, so
 * calls do not get slower.
 */
#ifndef DICOMM_COMM_JOB_INFO_H
#define DICOMM_COMM_JOB_INFO_H

#include <stdbool.h>

struct dicomm_comm;
struct wait_note;

/* The answer contains a communicator from job_info_add() to job_info_remove(),
 * which may be called without the former. */
void job_info_add(struct dicomm_comm *comm);
void job_info_remove(struct dicomm_comm *comm);

/* What this rank waits for; false: it does not wait. Any thread. */
bool job_info_find_wait(struct dicomm_comm *comm, struct wait_note *note);

/* Opens the socket, unless it is open. */
void job_info_open(void);

#endif
