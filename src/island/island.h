/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Islands: the ranks of a host on devices of one kind, with a communicator of
 * the vendor's own library. A collective goes by that library inside islands
 * and by this one between them, so that each byte enters an island once.
 *
 * A message is cut into pieces, one for each rank of an island. Equal islands
 * have the same pieces, and the owners of a piece are a group of the
 * communicator (struct call_group), which does its part between the islands.
 * Between unequal islands, pieces pass by what two ranks have in common
 * (swap.h).
 *
 * Threads: calls are made by the user's threads, one at a time (`calls`). A
 * thread of the island aborts the vendor's communicator when ours breaks.
 */
#ifndef DICOMM_ISLAND_ISLAND_H
#define DICOMM_ISLAND_ISLAND_H

#include <pthread.h>
#include <semaphore.h>

#include "src/core/comm.h"
#include "src/island/library.h"
#include "src/island/part.h"
#include "src/memory/lease.h"

/* Sizes for which costs are compared: 16 KiB to 1 GiB, in steps of 4 */
#define ISLAND_SIZES 9

struct island {
	struct dicomm_comm *comm;
	const struct island_library *library; /* NULL: this rank is alone */
	/* NULL as above, or ended */
	_Atomic(struct vendor_comm *) vendor;
	/* Why there are none, for explain; "": there are. */
	char why[256];
	uint32_t islands, mine;
	uint32_t *of;     /* [rank]: its island */
	uint32_t *index;  /* [rank]: its number in its island */
	uint32_t *size;   /* [island] */
	uint32_t *rank;   /* [first[island] + index]: the rank */
	uint32_t *first;  /* [islands] */
	uint32_t pieces;  /* ranks of the largest island */
	bool equal;       /* all islands are of one size */
	bool consecutive; /* as are the ranks of each */
	/* If they are, the ranks of this rank's number, one of each */
	struct call_group owners;
	/* Least bytes of the longer buffer for which islands are predicted to
	 * be faster; UINT64_MAX: never. */
	uint64_t least[COLL_KINDS];
	/* Longest part, in bytes of the longer buffer, that is best for these
	 * sizes; 0: a call is one part. */
	uint64_t part_bytes[COLL_KINDS][ISLAND_SIZES];
	/* Of an all-to-all: least bytes of a block that goes by the vendor's
	 * library, and bytes of each that this is given at a time. */
	size_t least_block, exchange_bytes;

	pthread_mutex_t calls;
	_Atomic(void *) caller; /* __builtin_thread_pointer(), in a call */
	/* Guards `vendor` where its functions only queue work. */
	pthread_mutex_t lock;
	sem_t broken; /* ours broke, or ends */
	bool has_thread, finalized;
	_Atomic bool closing;
	pthread_t thread;
	/* Memory for what is no result of this rank: of job.c, one
	 * for each stream of the device, or one. */
	struct island_scratch *scratch;
	struct island_parts parts;
};

/* The setting of this rank: its config's, else the variable's */
const char *island_wish(const struct dicomm_comm *comm);
/*
 * Forms the islands, at the end of setup, if the ranks want any. All ranks call
 * it. With "auto" a rank that cannot take part leaves all ranks without
 * islands; comm_explain says why. Otherwise that is an error.
 */
dicomm_result_t island_open(struct dicomm_comm *comm);
/* Ends the vendor's communicator once all has been done: bounded. */
void island_finalize(struct dicomm_comm *comm);
void island_close(struct dicomm_comm *comm);

/* Is this collective done by islands? All ranks answer alike. */
bool island_takes(const struct dicomm_comm *comm, const struct call *call);
/* Does it, in a group at the end of that: blocks on a host rank without a
 * stream, or with ranks of the host in its island; else it is queued on the
 * stream. Takes over the counts, also on failure. */
dicomm_result_t island_call(struct dicomm_comm *comm, const struct call *call,
			    size_t *counts, dicomm_stream_t stream);

/* Is this a signal handler that has interrupted such a call, or a group with
 * one? Takes no lock. */
bool island_is_inside(const struct dicomm_comm *comm);

/* Says, in one line, whether a collective of so many bytes goes by islands. */
void island_explain(const struct dicomm_comm *comm, enum coll coll,
		    uint64_t bytes, dicomm_datatype_t type, char *text,
		    size_t len);

/* The rest is for the files of this folder. */

/* settle.c: waits until what was begun on the vendor's communicator is ready,
 * for `timeout_ms` at most (0: no limit). `result` is what the function
 * returned, `what` its name. Returns the error, logged. */
dicomm_result_t island_settle(struct island *is, struct vendor_comm *vendor,
			      int result, const char *what, int timeout_ms);
/* One look of that, of what began at `since_ms`: DICOMM_IN_PROGRESS while it is
 * not ready. *result becomes what the vendor's library says. */
dicomm_result_t island_settle_look(struct island *is,
				   struct vendor_comm *vendor, int *result,
				   const char *what, uint64_t since_ms,
				   int timeout_ms);
/* This rank begins to wait in the vendor's library, or ends it: others may ask
 * for whom it waits (core/wait_chain.h). */
void island_settle_note(struct island *is, bool waits);
/* After a time-out, which has been logged: breaks ours, and says for which rank
 * this one has waited, and the hint. Returns the status. */
dicomm_result_t island_settle_late(struct island *is, const char *hint);
/* A pause between two looks, of *ns, which then grows. */
#define ISLAND_NAP_NS 20000
void island_settle_nap(long *ns);

/* Fills in `least` and `part_bytes`: measures the vendor's library, and
 * predicts the rest. */
dicomm_result_t island_compare(struct island *is);
/* Returns the longest part of a collective of so many bytes; 0: all of it. */
uint64_t island_part_bytes(const struct island *is, enum coll coll,
			   uint64_t bytes);
void island_free_scratch(struct island *is);
/* Frees memory of the rank's device: now, or once no stream is blocked. */
static inline void island_free(const struct dicomm_comm *comm, void *at)
{
	if (comm->dev)
		lease_free(comm->accel, comm->index, at);
	else
		comm->accel->free(at);
}

/* Returns the owner of a piece in an island. */
static inline uint32_t island_owner(const struct island *is, uint32_t island,
				    uint32_t piece)
{
	return is->rank[is->first[island] + piece % is->size[island]];
}

#endif
