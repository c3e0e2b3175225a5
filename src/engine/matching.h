/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matches receives with a tag and messages: a hash table of lines. A line
 * belongs to one source and one tag, and holds either the receives that wait
 * for a message or the messages that wait for a receive, in order. Receives
 * from any source have a line of their own for each tag. No function takes
 * longer when more entries wait.
 *
 * If several receives match a message, the first one in call order gets it. If
 * several sources have a message for a receive from any source, they take
 * turns: the source whose last turn is the longest ago is next. So once a
 * message has arrived, each other source gets at most one turn before it.
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

/* A message without a receive; embedded in the struct of its owner */
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
	/* found last; the next search is often for the same line */
	struct line *latest;
	unsigned anys;   /* receives from any source that wait */
	uint64_t number; /* of the latest receive */
};

void op_list_append(struct op_list *list, struct operation *op);
/* Removing the first element takes constant time. Does nothing if the operation
 * is not in the list. */
void op_list_remove(struct op_list *list, struct operation *op);

/* Removes the receive that gets this message, and returns it. NULL: none waits
 * for such a message. */
struct operation *matching_receive(struct matching *m, int source, int tag);
/* Keep a message for which no receive waits. Returns false if there is no
 * memory. */
bool matching_keep(struct matching *m, struct arrival *a);
/* Returns true if a message waits for such a receive. */
bool matching_has(struct matching *m, int source, int tag);
/* Removes the message for such a receive, and returns it. NULL: there is
 * none. */
struct arrival *matching_take(struct matching *m, int source, int tag);
/* Appends a receive that has to wait for its message. Returns false if there is
 * no memory. */
bool matching_post(struct matching *m, struct operation *op);
/* Removes a receive. Returns false if it was not waiting. */
bool matching_drop(struct matching *m, struct operation *op);

/* Appends a send to its line. Returns false if there is no memory. */
bool matching_send(struct matching *m, struct operation *op);
/* Returns true if a send that has begun may be announced to the peer: all
 * earlier sends of its line have been. */
bool matching_may_tell(struct matching *m, struct operation *op);
/* The send has been announced. Returns the next send of the line that may be
 * announced, or NULL. */
struct operation *matching_told(struct matching *m, struct operation *op);
void matching_drop_send(struct matching *m, struct operation *op);

/* Calls release() for every message that is left. */
void matching_free(struct matching *m, void (*release)(struct arrival *a));

#endif
