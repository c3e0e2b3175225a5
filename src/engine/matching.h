/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which receive with a tag gets which message: a hash table of lines. A line is
 * what waits of one source and one tag: receives without a message, or messages
 * without a receive, each in their order. Receives from any source have a line
 * of their own for each tag. Nothing here takes longer if more waits.
 *
 * Receives that fit a message get it in call order. A receive from any source
 * takes turns: among the sources that have a message for it, the one whose turn
 * is the longest ago, or that has waited for its first turn the longest. So
 * from the arrival of a message on, each other source gets at most one turn
 * before it.
 *
 * Sends of one tag to one peer keep their order too: they also have a line.
 */
#ifndef DICOMM_ENGINE_MATCHING_H
#define DICOMM_ENGINE_MATCHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/core/operation.h"

#define MATCHING_ANY (-1)

struct line;

/* A message without a receive; a part of what its owner knows about it */
struct arrival {
	struct arrival *next;
	int source, tag;
};

struct op_list {
	struct operation *first, *last;
};

struct matching {
	struct line **lines;
	size_t room, n; /* room: a power of two, or 0 */
	struct line
		*latest; /* that was looked for; the next is often the same */
	unsigned anys;   /* receives from any source that wait */
	uint64_t number; /* of the latest receive */
};

void op_list_append(struct op_list *list, struct operation *op);
/* Takes no longer for the first one. Does nothing if it is not there. */
void op_list_remove(struct op_list *list, struct operation *op);

/* The receive for a message, which waits no longer; NULL: none waits. */
struct operation *matching_receive(struct matching *m, int source, int tag);
/* Keep a message for which no receive waits. Returns false if there is no
 * memory. */
bool matching_keep(struct matching *m, struct arrival *a);
/* Is there a message for a receive? */
bool matching_has(struct matching *m, int source, int tag);
/* The message for a receive, which is kept no longer; NULL: there is none. */
struct arrival *matching_take(struct matching *m, int source, int tag);
/* A receive for which there is no message waits. Returns false if there is no
 * memory. */
bool matching_post(struct matching *m, struct operation *op);
/* Returns false if it does not wait. */
bool matching_drop(struct matching *m, struct operation *op);

/* A send has been called. Returns false if there is no memory. */
bool matching_send(struct matching *m, struct operation *op);
/* Returns true if the peer may be told of a send that has begun: all earlier
 * ones of its line were. */
bool matching_may_tell(struct matching *m, struct operation *op);
/* The peer was told. Returns the next send of which it may be told, or NULL. */
struct operation *matching_told(struct matching *m, struct operation *op);
void matching_drop_send(struct matching *m, struct operation *op);

/* Calls release() for every message that is left. */
void matching_free(struct matching *m, void (*release)(struct arrival *a));

#endif
