/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments and rings of shared memory.
 *
 * Each rank has one segment, a memfd. It begins with a header; behind that are
 * the rings of the messages that this rank sends. A ring is made when its first
 * message is sent; then its offset is written into the header. A peer maps the
 * header, reads the offset there (0: no ring yet), and maps the ring. Nothing
 * has a name in a file system, so nothing is left when a process is killed.
 */
#ifndef DICOMM_TRANSPORTS_SHM_SEGMENT_H
#define DICOMM_TRANSPORTS_SHM_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/base/doorbell.h"
#include "transports/shm/address.h"
#include "transports/transport.h"

#define SHM_FREED_IDS 256

/* Start of a segment. Only its owner writes it, except for the doorbell. */
struct shm_header {
	uint64_t magic;
	uint64_t nonce[2]; /* random, different for each segment */
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	uint64_t probe; /* address, in the owner, of another copy of nonce[0] */
	/* The owner has aborted. Memory that it offered may be gone. */
	_Atomic bool withdrawn;
	/* What host_memory_freed() of the owner's process lists. */
	_Atomic uint64_t freed;
	_Atomic uint64_t freed_ids[SHM_FREED_IDS];
	struct doorbell doorbell __attribute__((aligned(TP_LINE_BYTES)));
	/* [peer * TP_CLASSES + class]; apart from the doorbell */
	_Atomic uint64_t ring[] __attribute__((aligned(TP_LINE_BYTES)));
};

/* A range of lengths in bytes; first is 0 until the receiver has set it. */
struct shm_lengths {
	_Atomic uint64_t first, last;
};

/* What the receiver of a ring writes for its sender. Lies between the lines and
 * the data; only the receiver writes it. */
struct shm_tail {
	_Atomic uint64_t released;
	/* Lengths of messages that the receiver reads by CMA, for each enum
	 * shm_traffic */
	struct shm_lengths cma[3];
	/* Requests so far; see pull.h */
	_Atomic uint64_t asked;
	/* The receiver cannot map the sender's allocations. */
	_Atomic bool maps_nothing;
} __attribute__((aligned(TP_LINE_BYTES)));

/* For each slot, behind the tail; only the receiver writes it. */
struct shm_question {
	_Atomic uint64_t number;
	uint64_t seq, from, len;
};

struct shm_segment {
	struct shm_segment *next;
	int refs;        /* guarded by the lock of segment.c */
	bool own;        /* the owner is a rank of this process */
	int fd;          /* descriptor in the owner */
	pid_t pid;       /* process of the owner */
	uint64_t len;    /* own: length of the file */
	uint64_t mapped; /* bytes of head that are mapped */
	uint64_t nonce[2];
	/* own: how many entries of freed() are in the header */
	uint64_t published;
	struct shm_header *head;
	struct shm_ring *rings; /* own: all rings of the segment */
	/* own: ranks of this process that are reading memory of the owner. No
	 * read begins once head->withdrawn is set. */
	_Atomic int readers;
};

struct shm_ring {
	struct shm_ring *next;
	struct shm_segment *seg; /* counted in seg->refs */
	int refs;
	uint64_t offset, bytes; /* its place in the segment */
	struct tp_line *lines;
	struct shm_tail *tail;
	struct shm_question *questions;
	/* [slot]: number of the last request that was served; behind the
	 * requests; only the sender writes it. */
	_Atomic uint64_t *answers;
	uint8_t *data; /* of the slots; behind them, the exchange buffers */
};

dicomm_result_t shm_segment_create(const struct tp_config *config,
				   struct shm_segment **out);
/* Returns true if this process can open that segment and its owner has not
 * aborted. Otherwise the reason is in `why`. Logs nothing. */
bool shm_segment_reachable(const struct shm_address *a, char *why, size_t len);
dicomm_result_t shm_segment_attach(const struct shm_address *a,
				   struct shm_segment **out);
void shm_segment_put(struct shm_segment *seg);
/* Give the address by which peers attach to the segment, with the rates that
 * this process has measured. */
void shm_segment_address(const struct shm_segment *seg,
			 const struct shm_host *host,
			 const struct shm_rates *rates, struct tp_blob *blob);
/* Returns true if the address is that of a rank of this process. */
bool shm_segment_is_own(const struct shm_address *a);

/* Returns true if this errno means that the kernel refuses access to a segment
 * that may still exist: the owner may have given up privileges since the first
 * access, or this process may have no descriptor left. */
bool shm_is_refused(int error);

/* Add a ring to a segment of this process. */
dicomm_result_t shm_ring_create(struct shm_segment *seg, struct shm_ring **out);
dicomm_result_t shm_ring_attach(struct shm_segment *seg, uint64_t offset,
				struct shm_ring **out);
void shm_ring_put(struct shm_ring *ring);

#endif
