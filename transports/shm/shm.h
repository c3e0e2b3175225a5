/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of one machine.
 *
 * Each rank has one segment, a memfd: a header with a directory, and behind it
 * the rings of the messages that this rank sends, each made at the first one.
 * A peer maps the header, reads in the directory where its ring is (0: not
 * made yet), and maps the ring. Nothing has a name in a file system, so nothing
 * stays behind a process that is killed.
 */
#ifndef DICOMM_TRANSPORTS_SHM_SHM_H
#define DICOMM_TRANSPORTS_SHM_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/accel/accel.h"
#include "transports/transport.h"

#define SHM_FREED_IDS 256
/* Of a tp_ref, those that are used: line head and they are one cache line. */
#define SHM_REF_BYTES 40

/* address.c: who a rank is, and whether it can be reached. */

/* What travels in a tp_blob. */
/* measure.c: how far away other cores are. */

struct shm_rates {
	uint64_t line_ps;          /* a cache line, one way; 0: not known */
	uint64_t fill_bytes_per_s; /* copying to where another core has read */
	uint64_t load_bytes_per_s; /* copying what another core has written */
	uint64_t cma_bytes_per_s;  /* from another process; 0: impossible */
	uint64_t cma_ps;           /* for the call, beside that */
};

/* By this process, unless others of the machine do: then not known. */
void shm_measure(struct shm_rates *rates);
/* What this process uses: what it has measured, else what it was told first,
 * else a guess. Any thread. */
void shm_rates_tell(const struct shm_rates *rates);
void shm_rates_get(struct shm_rates *rates);

/* address.c: who a rank is. */

struct shm_address {
	uint32_t magic, version;
	uint64_t check; /* of the bytes, with 0 here */
	uint8_t boot_id[16];
	uint64_t pid_namespace;
	uint64_t host_id; /* host_name_hash() */
	uint64_t nonce[2];
	int32_t pid, fd;
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	struct shm_rates rates; /* as the rank has measured them */
};

struct shm_segment;

void shm_address_make(const struct shm_segment *seg, struct tp_blob *blob);
/* False, with the reason in why, if the bytes are not an address. */
bool shm_address_parse(const struct tp_blob *blob, struct shm_address *a,
		       char *why, size_t len);
/* Same machine, same pid namespace? The reason if not. */
bool shm_address_is_local(const struct shm_address *a, char *why, size_t len);

/* segment.c: segments and rings, shared by the ranks of a process. */

/* Start of a segment. Written by its owner only. */
struct shm_header {
	uint64_t magic;
	uint64_t nonce[2];
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
	uint64_t probe; /* where, in the owner, nonce[0] can be read too */
	/* The owner has aborted: what it offered may be gone */
	_Atomic bool withdrawn;
	/* Allocations that the owner's process has freed; as accel->freed() */
	_Atomic uint64_t freed;
	_Atomic uint64_t freed_ids[SHM_FREED_IDS];
	_Atomic uint64_t ring[]; /* [peer * TP_CLASSES + class] */
};

/* Messages of so many bytes; first 0: it has not been said which. */
struct shm_lengths {
	_Atomic uint64_t first, last;
};

/* Between the lines and the data of a ring. Written by the receiver only. */
struct shm_tail {
	_Atomic uint64_t released;
	/* Messages that the receiver reads by CMA: while it only receives, and
	 * while it sends as much itself. */
	struct shm_lengths cma_copy, cma_exchange;
} __attribute__((aligned(TP_LINE_BYTES)));

struct shm_segment {
	struct shm_segment *next;
	int refs;
	bool own;     /* of this process: its pointers are ours */
	int fd;       /* in the owner */
	pid_t pid;    /* of the owner */
	uint64_t len; /* own: length of the file */
	uint64_t mapped;
	uint64_t nonce[2];
	uint64_t published; /* own: entries of freed() that are in the header */
	struct shm_header *head;
	struct shm_ring *rings; /* own: those that exist */
	/* own: ranks of this process that read, by address, what the owner has
	 * offered; none begins once head->withdrawn. */
	_Atomic int readers;
};

struct shm_ring {
	struct shm_ring *next;
	struct shm_segment *seg; /* referenced */
	int refs;
	uint64_t offset, bytes;
	struct tp_line *lines;
	struct shm_tail *tail;
	uint8_t *data;
};

dicomm_result_t shm_segment_create(const struct tp_config *config,
				   struct shm_segment **out);
/* Quiet: can that segment be opened from here, and has its owner not aborted?
 */
bool shm_segment_reachable(const struct shm_address *a, char *why, size_t len);
dicomm_result_t shm_segment_attach(const struct shm_address *a,
				   struct shm_segment **out);
void shm_segment_put(struct shm_segment *seg);
/* Is that the segment of a rank of this process? */
bool shm_segment_is_own(const struct shm_address *a);

/* Add a ring to a segment of this process. */
dicomm_result_t shm_ring_create(struct shm_segment *seg, struct shm_ring **out);
dicomm_result_t shm_ring_attach(struct shm_segment *seg, uint64_t offset,
				struct shm_ring **out);
void shm_ring_put(struct shm_ring *ring);

/* cma.c: reading the memory of another process. */

/* For which messages of at most `most` bytes that pays, by the rates of this
 * machine; none: first is UINT64_MAX. `exchange`: the receiver sends as much at
 * the same time. */
void shm_cma_pays(const struct shm_rates *rates, bool exchange, uint64_t most,
		  uint64_t *first, uint64_t *last);

/* Can this process read the memory of the owner of that segment? */
bool shm_cma_works(const struct shm_segment *seg);
dicomm_result_t shm_cma_read(const struct shm_segment *seg, uint64_t addr,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted);

/* pull.c: references to memory, and the memory of neighbours that is mapped. */

struct shm_pull; /* what one peer's references have led to */

/* Refer to [addr, addr + len), in the cheapest way that the reader has. */
struct shm_offer {
	bool own;               /* the reader is in this process */
	bool cma;               /* the reader can use CMA */
	uint64_t map_threshold; /* bytes */
	uint64_t cma_threshold; /* bytes */
	pid_t pid;              /* this process */
};
bool shm_pull_offer(const struct shm_offer *how, const void *addr, uint64_t len,
		    struct tp_ref *ref);
dicomm_result_t shm_pull_create(struct shm_pull **out);
void shm_pull_destroy(struct shm_pull *pull);
dicomm_result_t shm_pull_map(struct shm_pull *pull,
			     const struct shm_segment *seg,
			     const struct tp_ref *ref, uint64_t len,
			     const void **ptr);
dicomm_result_t shm_pull_read(struct shm_pull *pull,
			      const struct shm_segment *seg,
			      const struct tp_ref *ref, uint64_t offset,
			      void *dst, uint64_t len,
			      const _Atomic bool *aborted);
/* Tell neighbours, in the header, what this process has freed. */
void shm_pull_publish(struct shm_segment *seg);
/* Unmapping what the owner has freed takes two steps. condemn(): true if the
 * owner has freed anything since the last time. drop(): unmap it; every message
 * that had arrived at condemn() has been released since. */
bool shm_pull_condemn(struct shm_pull *pull, const struct shm_segment *seg);
void shm_pull_drop(struct shm_pull *pull, const struct shm_segment *seg);

#endif
