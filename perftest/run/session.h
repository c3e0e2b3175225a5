/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicators, buffers and processes of a run. Every function ends the
 * program on failure.
 */
#ifndef DICOMM_PERFTEST_RUN_SESSION_H
#define DICOMM_PERFTEST_RUN_SESSION_H

#include "perftest/base/exchange.h"
#include "perftest/operation/options.h"
#include "perftest/report/report.h"

/* Bytes behind the received data that nothing may write. */
#define SESSION_GUARD 64

/* One rank of this process. While threads run, only its own thread uses it. */
struct session_rank {
	int rank;               /* in its group */
	dicomm_comm_t *comm;    /* element of session.comms */
	dicomm_stream_t stream; /* NULL: calls block */
	/* Calls never block; the host works on copies. */
	bool on_device;
	/* Session.buffer_bytes each; from element -u on. */
	char *send, *recv;
	/* For the expected contents of the others; NULL: the host checks. */
	char *check;
	/* As allocated; owned. */
	void *send_base, *recv_base, *check_base;
	/* The buffers as the host sees them: the same, or copies. */
	char *send_seen, *recv_seen;
	void *send_copy, *recv_copy;     /* owned; NULL if not on a device */
	void *send_handle, *recv_handle; /* of -R 1 */
	dicomm_window_t window;          /* for one-sided operations */
	const char *window_base;
	struct traffic_part part; /* for operations with counts */
};

struct session {
	struct options *o;
	struct exchange exchange;
	int ranks; /* of each communicator under test */
	/* NCCL_TESTS_SPLIT; number of this process in it. */
	int group, group_proc;
	int local_proc;            /* number of this process on its host */
	int all_ranks;             /* of all groups */
	bool one_host;             /* all on one host, so they share a clock */
	bool streams;              /* -y 0: calls do not block */
	dicomm_unique_id_t id;     /* of this process's group */
	struct session_rank *mine; /* threads x devices; owned */
	dicomm_comm_t *comms;      /* like mine; owned */
	struct traffic traffic;
	struct report_device *devices; /* all_ranks; owned */
	size_t buffer_bytes;
	double memory_init; /* -M: the most of any rank of this process */
	/* The error text after a lookup that finds nothing, which is not an
	 * error. */
	char no_error[256];
};

/* Starts the exchange with the other processes. child_rank is the result of
 * launch_child(). */
void session_open(struct session *s, struct options *o, int child_rank);
/* Limits the sizes to what fits into memory, and makes the communicators unless
 * the threads do (-p 1). */
void session_connect(struct session *s);
void session_close(struct session *s);
/* Returns true if this process prints. */
bool session_reports(const struct session *s);

/* Each thread calls this for its ranks. Makes the communicators with -p 1,
 * makes the buffers, and binds the thread to its cores. */
void session_thread_open(struct session *s, int thread);
void session_thread_close(struct session *s, int thread);

/* Sets where the buffers begin, in bytes from their base. */
void session_rank_shift(struct session_rank *r, size_t bytes);
/* push copies what the host has written to the device; pull copies what is
 * there to the host. `bytes` counts from the beginning of both buffers. */
void session_rank_push(struct session_rank *r, size_t bytes);
void session_rank_pull(struct session_rank *r, size_t bytes);
/* Waits until everything that is queued is done. */
void session_rank_wait(struct session_rank *r);

/* Collects the facts about all ranks, when the threads are open. */
void session_devices(struct session *s);

/* Called after the run, on all processes; only the one that reports needs the
 * text. */
void session_traffic(struct session *s, char *text, size_t len);
void session_memory(struct session *s, char *text, size_t len);

#endif
