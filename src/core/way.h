/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways by which bytes get from the memory of one rank's device to that of
 * another's, the better ones first; and why a pair does not take those.
 */
#ifndef DICOMM_CORE_WAY_H
#define DICOMM_CORE_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for the longest explanation of a pair */
#define WAY_TEXT 1024

/* Why nothing is mapped then */
#define NO_NEAR_WIRE "no transport of one machine is used"

enum way {
	WAY_HOST, /* both have host memory: any wire */
	WAY_IPC,  /* each device maps the other's memory */
	/* A device reads and writes host memory that it shares with a host. */
	WAY_MAPPED,
	WAY_RDMA,  /* a network adapter reaches the memory of both */
	WAY_STAGED /* through host memory */
};

/* One end, as all ranks know it. */
struct way_end {
	const char *device; /* "cuda:0" */
	uint64_t host;      /* tells machines apart */
	int pid;
	bool on_host; /* its memory is the host's */
	bool exports; /* other processes can map its memory */
	bool lends;   /* ranks of its process may read it as it is */
};

struct way_pair {
	struct way_end a, b;
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
 * way_pair.mapped. */
bool way_may_map(const struct way_end *a, const struct way_end *b);
/* Is one of these a host, and the other a device that tries? */
bool way_may_share(const struct way_end *a, const struct way_end *b);
enum way way_find(const struct way_pair *p);
/* For each better way, why it is not taken: "not ipc: ...; not rdma: ..." */
void way_why_not(const struct way_pair *p, char *text, size_t len);
/* The name of the way, then that. */
void way_explain(const struct way_pair *p, char *text, size_t len);

#endif
