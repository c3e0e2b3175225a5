/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DICOMM_METRICS: what the communicators of this process have done, in a file
 * of Prometheus' text format, as the textfile collector of its node exporter
 * reads it. The control thread writes it anew every METRICS_S seconds, and the
 * thread that destroys a communicator once more, by way of a file beside it
 * that takes its name: so a reader always finds a whole one.
 *
 * The numbers are those that the data path counts anyway.
 */
#ifndef DICOMM_COMM_METRICS_H
#define DICOMM_COMM_METRICS_H

struct dicomm_comm;

#define METRICS_S 5

/* The communicator is in the file from metrics_add() to metrics_remove(), if
 * DICOMM_METRICS is set; what it has done stays there for the rest of the
 * process, so that no counter goes back. A file that cannot be written is
 * warned of, once. metrics_remove() may be called without metrics_add(). */
void metrics_add(struct dicomm_comm *comm);
void metrics_remove(struct dicomm_comm *comm);

#endif
