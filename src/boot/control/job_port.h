/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The port at which a job that runs is asked what its ranks do (dicomm-info
 * --job HOST:PORT). It is the one at which the ranks of the first communicator
 * met that has its rank 0 in this process: it stays open while rank 0 of any
 * communicator is here. Who asks has to prove that it knows the secret of the
 * job. The answer is about the ranks of the oldest communicator: the hub asks
 * all of them, and passes on what each process tells.
 *
 * Another process of this host that wants to listen at the port gets it
 * (lent_port.h), and so does this one when it has no other.
 *
 * Callers of all functions hold the lock of the loop, except where noted.
 */
#ifndef DICOMM_BOOT_JOB_PORT_H
#define DICOMM_BOOT_JOB_PORT_H

#include <stdbool.h>

#include "src/base/auth.h"

struct frame_reader;
struct listener;
struct members;

/* What a FRAME_TOLD is. A rank sends the first four, with the answer of its
 * process in the parts; who asks gets all but the third. */
enum told {
	TOLD_PART,
	TOLD_LAST,    /* the last part */
	TOLD_ALREADY, /* another rank of the same process tells */
	TOLD_NOTHING, /* DICOMM_JOB_INFO is off; bytes: where the rank is */
	TOLD_LATE,    /* no answer in time; the same */
	TOLD_GONE,    /* it has left or died; the same */
	TOLD_END,     /* of the whole answer */
	TOLD_UNASKED  /* as TOLD_LATE, but it was not even asked */
};

#define JOB_PORT_PART 8192 /* most bytes of a part */
/* What a rank tells has to arrive within this time. */
#define JOB_PORT_MS 3000

/* A communicator whose rank 0 is in this process; a part of its hub. */
struct job_comm {
	struct members *members; /* NULL: it is not known here */
	struct job_comm *next, **link;
};

/* Computes the key that who asks has to know, from the port of host:port and
 * the secret of the job. Needs no lock. It takes as long as
 * auth_key_from_secret(). */
dicomm_result_t job_port_key(const char *host_port, const char *secret,
			     uint8_t key[AUTH_KEY]);
/* Returns true if this process wants to be asked over the network: the job has
 * a secret, and the parameters let it. Needs no lock. */
bool job_port_is_wanted(void);

/* Lets who knows that key ask at this listener. */
void job_port_serve(struct listener *l, const uint8_t key[AUTH_KEY]);
/* All ranks of a communicator have come, to the hub. Takes ownership of the
 * listener at which they met (NULL: none is left): it stays open if somebody
 * may ask there, and the process has no such port yet. */
void job_port_add(struct job_comm *c, struct members *members,
		  struct listener *l);
/* Rank 0 leaves. c need not be known. */
void job_port_remove(struct job_comm *c);
/* A FRAME_TOLD of a rank of that communicator. Returns false if it does not
 * parse. */
bool job_port_told(const struct job_comm *c, int rank, struct frame_reader *in);
/* Closes the port, if it is this one, because this process wants to listen
 * there anew. */
void job_port_give_back(unsigned port);
/* Where it is open: "ADDRESS:PORT", or "HOST:PORT" if at all addresses; NULL:
 * it is not. */
const char *job_port_address(void);

#endif
