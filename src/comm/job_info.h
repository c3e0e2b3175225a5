/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this process answers to dicomm-info --job: the state of each of its
 * communicators. The control thread writes it. It takes only locks that nobody
 * holds while waiting, and reads what the data path leaves behind anyway, so
 * that calls pay nothing for it.
 */
#ifndef DICOMM_COMM_JOB_INFO_H
#define DICOMM_COMM_JOB_INFO_H

struct dicomm_comm;

/* A communicator is told of from its creation to its end. To remove it, it need
 * not have been added. */
void job_info_add(struct dicomm_comm *comm);
void job_info_remove(struct dicomm_comm *comm);

/* Answers from now on, if it does not yet. */
void job_info_open(void);

#endif
