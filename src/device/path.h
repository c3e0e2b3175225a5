/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways by which bytes get from the memory of one rank's device to that of
 * another's, the better ones first; and why a pair does not take those.
 */
#ifndef DICOMM_DEVICE_PATH_H
#define DICOMM_DEVICE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for the longest explanation of a pair */
#define PATH_TEXT 1024

/* Why nothing is mapped then */
#define NO_LOCAL_TRANSPORT "no transport of one machine is used"

enum path {
	PATH_HOST, /* both have host memory: any wire */
	PATH_IPC,  /* each device maps the other's memory */
	/* A device reads and writes host memory that it shares with a host. */
	PATH_MAPPED,
	PATH_RDMA,  /* a network adapter reaches the memory of both */
	PATH_STAGED /* through host memory */
};

/* One end, as all ranks know it. */
struct path_end {
	const char *device; /* "cuda:0" */
	uint64_t host;      /* tells machines apart */
	int pid;
	bool on_host;           /* its memory is the host's */
	bool exports;           /* other processes can map its memory */
	bool shares_in_process; /* ranks of its process may read it as it is */
};

struct path_pair {
	struct path_end a, b;
	bool mapped; /* both reach the other's memory */
	/* In the words of a driver, why one does not; or empty */
	const char *why_unmapped;
	bool never; /* one of them refuses staging */
	bool wired; /* some wire takes the memory of both */
	/* How, or why it does not take that of a device; or empty */
	const char *wiring;
	const char *wiring_of; /* the device of which that is said */
};

/* Can they try to reach each other's memory? Then they do, and it shows in
 * path_pair.mapped. */
bool path_may_map(const struct path_end *a, const struct path_end *b);
/* Is one of these a host, and the other a device that tries? */
bool path_may_share(const struct path_end *a, const struct path_end *b);
enum path path_find(const struct path_pair *p);
/* For each better way, why it is not taken: "not ipc: ...; not rdma: ..." */
void path_why_not(const struct path_pair *p, char *text, size_t len);
/* The name of the way, then that. */
void path_explain(const struct path_pair *p, char *text, size_t len);

#endif
