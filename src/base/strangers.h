/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections whose other end has not proved yet that it is of this job: one
 * policy for all who listen. Anybody may open as many as he likes, and say
 * nothing. So a newcomer is always let in, and the oldest that has proved
 * nothing goes when there are too many of them, or no descriptors. A rank
 * proves who it is as soon as it is heard, so it is among the newest.
 *
 * The owner of the list guards it.
 */
#ifndef DICOMM_BASE_STRANGERS_H
#define DICOMM_BASE_STRANGERS_H

#include <stdbool.h>
#include <stddef.h>

/* How many may be there beyond the ranks that may call at the same time */
#define STRANGERS_MOST 128

/* A part of each connection. All zeroes: it is in no list. */
struct stranger {
	struct stranger *next, **link;
	void *conn;
};

/* All zeroes: empty. */
struct strangers {
	unsigned count;
	struct stranger *first, **last; /* oldest first */
};

void strangers_add(struct strangers *all, struct stranger *s, void *conn);
/* It has proved who it is, or is closed. May be in no list. */
void strangers_remove(struct strangers *all, struct stranger *s);
/* The oldest connection, as given to strangers_add(); NULL: there is none. */
void *strangers_oldest(const struct strangers *all);
/* The one that has to go where so many ranks may call at the same time; NULL:
 * none has to. */
void *strangers_surplus(const struct strangers *all, unsigned ranks);

#endif
