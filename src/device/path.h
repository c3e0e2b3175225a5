/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The paths by which bytes get from the memory of one rank's device to that of
 * another, best first, and why a pair does not take a better one.
 */
#ifndef DICOMM_DEVICE_PATH_H
#define DICOMM_DEVICE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes for the longest explanation of a pair. */
#define PATH_TEXT 1024

/* The reason why nothing is mapped, if the ranks share no transport within
 * the machine. */
#define NO_LOCAL_TRANSPORT "no transport of one machine is used"

enum path {
	PATH_HOST, /* both have host memory; any transport serves */
	PATH_IPC,  /* each device maps the other's memory */
	/* A device reads and writes host memory that it shares with a host
	   rank. */
	PATH_MAPPED,
	PATH_RDMA,  /* a network adapter reaches the memory of both */
	PATH_STAGED /* through host memory */
};

/* One end of a pair, as all ranks know it. */
struct path_end {
	const char *device; /* "cuda:0" */
	uint64_t host;      /* a number for its machine */
	int pid;            /* pid of its process */
	bool on_host;       /* its buffers are host memory */
	bool exports;       /* other processes can map its memory */
	/* Ranks of its process may read all its memory. */
	bool shares_in_process;
};

struct path_pair {
	struct path_end a, b;
	bool mapped; /* each device reaches the memory of the other */
	/* Why one does not reach the other's memory, in the driver's words,
	 * or "" */
	const char *why_unmapped;
	bool never; /* one of the two refuses staging */
	bool wired; /* some transport reaches the memory of both */
	/* The name of that transport, or why none reaches the memory of a
	 * device; or "" */
	const char *wiring;
	const char *wiring_of; /* the device to which `wiring` refers */
};

/* Returns true if they may try to map each other's memory. Whether they succeed
 * is path_pair.mapped. */
bool path_may_map(const struct path_end *a, const struct path_end *b);
/* Returns true if one end is a host rank, and the other a device that can map
 * its memory. */
bool path_may_share(const struct path_end *a, const struct path_end *b);
enum path path_find(const struct path_pair *p);
/* Write, for each better path, why it is not taken: "not ipc: ...; not
 * rdma: ..." */
void path_why_not(const struct path_pair *p, char *text, size_t len);
/* Write the name of the path, then the reasons. */
void path_explain(const struct path_pair *p, char *text, size_t len);

#endif
