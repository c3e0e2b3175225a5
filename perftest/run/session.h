/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run needs before it can measure: who the processes are, communicators
 * and buffers for the ranks of this one. All ends the program on failure.
 */
#ifndef DICOMM_PERFTEST_RUN_SESSION_H
#define DICOMM_PERFTEST_RUN_SESSION_H

#include "perftest/base/exchange.h"
#include "perftest/operation/options.h"
#include "perftest/report/report.h"

/* Bytes behind what is received, which nothing may touch. */
#define SESSION_GUARD 64

/* One rank of this process; its thread's, once the threads run. */
struct session_rank {
	int rank;               /* in its group */
	dicomm_comm_t *comm;    /* in session.comms */
	dicomm_stream_t stream; /* NULL: calls block */
	bool on_device;         /* calls never block; the host sees copies */
	char *send, *recv;      /* session.buffer_bytes each; at element -u */
	/* For what must be in the others; NULL: the host checks. */
	char *check;
	/* as allocated; owned */
	void *send_base, *recv_base, *check_base;
	/* The same for the host: themselves, or copies of them. */
	char *send_seen, *recv_seen;
	void *send_copy, *recv_copy;     /* owned; NULL: not on a device */
	void *send_handle, *recv_handle; /* -R 1 */
	struct traffic_part part;        /* alltoallv */
};

struct session {
	struct options *o;
	struct exchange exchange;
	int ranks;                 /* of each communicator under test */
	int group, group_proc;     /* NCCL_TESTS_SPLIT; place of this process */
	int local_proc;            /* place among the processes of this host */
	int all_ranks;             /* of all groups */
	bool one_host;             /* so that clocks can be compared */
	bool streams;              /* -y 0: not blocking */
	dicomm_unique_id_t id;     /* of this process's group */
	struct session_rank *mine; /* threads x devices; owned */
	dicomm_comm_t *comms;      /* the same; owned */
	struct traffic traffic;
	struct report_device *devices; /* all_ranks; owned */
	size_t buffer_bytes;
	double memory_init; /* -M: the most of any rank of this process */
	/* Asking for what is not there leaves an error text, which is none. */
	char no_error[256];
};

/* Meets the other processes. child_rank: as launch_child() said. */
void session_open(struct session *s, struct options *o, int child_rank);
/* Sizes that fit this machine; the communicators, unless threads do (-p 1). */
void session_connect(struct session *s);
void session_close(struct session *s);
/* Does this process print? */
bool session_reports(const struct session *s);

/* By each thread for its ranks: the communicators if not there yet (-p 1),
 * buffers, core. */
void session_thread_open(struct session *s, int thread);
void session_thread_close(struct session *s, int thread);

/* Where the buffers begin, by bytes from their base. */
void session_rank_shift(struct session_rank *r, size_t bytes);
/* Copy what the host has filled in to the device; or see what is there. bytes:
 * from the beginning of both buffers. */
void session_rank_push(struct session_rank *r, size_t bytes);
void session_rank_pull(struct session_rank *r, size_t bytes);
/* Wait for what is queued. */
void session_rank_wait(struct session_rank *r);

/* Once threads are open. */
void session_devices(struct session *s);

/* After the run, on all processes; the text is for the one that reports. */
void session_traffic(struct session *s, char *text, size_t len);
void session_memory(struct session *s, char *text, size_t len);

#endif
