/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles of communicators. They are places of a table that never goes: what is
 * no handle, or no longer one, is told from one without reading what it points
 * to, and ncclCommAbort() may free a communicator while other threads are in
 * calls on it, for each call says that it is there.
 */
#ifndef DICOMM_COMPAT_NCCL_HANDLE_H
#define DICOMM_COMPAT_NCCL_HANDLE_H

#include <stdatomic.h>

#include "compat/nccl/say.h"

enum nccl_state {
	NCCL_FREE,
	NCCL_PENDING,   /* to be made at the end of a group */
	NCCL_LIVE,      /* maybe not ready yet, or broken: the library knows */
	NCCL_SUSPENDED, /* by ncclCommSuspend() */
	NCCL_REVOKED,   /* by ncclCommRevoke(), or by shrinking with abort */
	NCCL_FAILED, /* a group could not make it; the program has it still */
	NCCL_DYING,  /* its end has begun */
};

struct nccl_redop;

struct ncclComm {
	_Atomic uint32_t busy;    /* a call is under way that must be alone */
	_Atomic uint32_t readers; /* calls that need not */
	_Atomic uint32_t state;   /* enum nccl_state */
	int pid;
	_Atomic(dicomm_comm_t) comm;
	bool leaves;   /* at exit() */
	bool blocking; /* as NCCL's users have it; ours never blocks */
	bool finalized;
	ncclResult_t failure;      /* of one that is FAILED */
	struct nccl_redop *redops; /* of who is busy */
	/* Made of this one, and not there yet, as far as anybody has looked */
	_Atomic(struct ncclComm *) children;
	_Atomic(struct ncclComm *) parent; /* in whose list it is */
	struct ncclComm *next; /* of its list: the free places, or children */
} __attribute__((aligned(128)));

#define NCCL_HANDLES 16384

extern struct ncclComm nccl_handles[NCCL_HANDLES]
	__attribute__((visibility("hidden")));

/* A place for a new communicator, in this state; NULL: all are taken. */
struct ncclComm *nccl_handle_new(const char *f, enum nccl_state state);
/* Of who made it DYING. */
void nccl_handle_free(struct ncclComm *c);
/* The same, of one that a group has handed out already: it can still be asked
 * why, and be destroyed. */
void nccl_handle_fail(struct ncclComm *c, ncclResult_t why);
/* f(): why a call cannot be made on it; has said so. */
ncclResult_t nccl_handle_refuse(const char *f, const void *c)
	__attribute__((cold));
/* A call on it has failed: as nccl_failed(), but of one that is not ready yet
 * NCCL says that the argument is invalid. */
ncclResult_t nccl_handle_failed(struct ncclComm *c, dicomm_result_t status)
	__attribute__((cold));
/* Waits until the other call is over; false: it never will be. */
bool nccl_handle_wait(struct ncclComm *c) __attribute__((cold));

static inline bool nccl_is_handle(const void *c)
{
	uintptr_t at = (uintptr_t)c - (uintptr_t)nccl_handles;

	return at < sizeof(nccl_handles) && !(at % sizeof(struct ncclComm));
}

static inline void nccl_leave(struct ncclComm *c)
{
	atomic_store_explicit(&c->busy, 0, memory_order_release);
}

/* For a call that must be alone. False: see nccl_handle_refuse(). */
static inline __attribute__((always_inline)) bool nccl_enter(struct ncclComm *c)
{
	if (__builtin_expect(!nccl_is_handle(c), 0))
		return false;
	if (__builtin_expect(atomic_exchange(&c->busy, 1) != 0, 0) &&
	    !nccl_handle_wait(c))
		return false;
	if (__builtin_expect(atomic_load(&c->state) == NCCL_LIVE, 1))
		return true;
	nccl_leave(c);
	return false;
}

/* For a call that need not, in any of these states (bits). */
bool nccl_enter_shared(struct ncclComm *c, unsigned states);
void nccl_leave_shared(struct ncclComm *c);
/* The same as nccl_enter(), in any of these states. */
bool nccl_enter_any(struct ncclComm *c, unsigned states);

#define NCCL_IN(state) (1u << (state))
#define NCCL_THERE \
	(NCCL_IN(NCCL_LIVE) | NCCL_IN(NCCL_SUSPENDED) | NCCL_IN(NCCL_REVOKED))

/* From any of these states to that one; false: it was in none of them. */
bool nccl_turn(struct ncclComm *c, unsigned from, enum nccl_state to);

/* As NCCL has it, a communicator is in progress while another one is made of
 * it: programs that do not wait poll the old one, then the new one. */
void nccl_child_add(struct ncclComm *parent, struct ncclComm *child);
/* It is there; what becomes of it is no longer told of its parent. */
void nccl_child_is_made(struct ncclComm *child);
/* DICOMM_IN_PROGRESS, or how the first of them has failed, which is told once.
 */
dicomm_result_t nccl_children_state(struct ncclComm *parent);

/* Until nobody is in a call on it, at most this long. */
bool nccl_handle_drain(struct ncclComm *c, int ms, bool busy, uint32_t own);

#endif
