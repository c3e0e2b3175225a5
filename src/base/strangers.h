/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections whose other end has not proved yet that it belongs to this job,
 * for all listeners. Anybody may open many of these and send nothing. So a new
 * connection is always accepted; if there are too many, or no free descriptor,
 * the oldest one without a proof is closed. A rank sends its proof at once, so
 * its connection is among the newest.
 *
 * The owner of the list guards it.
 */
#ifndef DICOMM_BASE_STRANGERS_H
#define DICOMM_BASE_STRANGERS_H

#include <stdbool.h>
#include <stddef.h>

/* How many there may be in addition to one for each rank that may connect
 * now */
#define STRANGERS_MOST 128

/* A part of each connection. All zero: it is in no list. */
struct stranger {
	struct stranger *next, **link;
	void *conn;
};

/* All zero: empty. */
struct strangers {
	unsigned count;
	struct stranger *first, **last; /* oldest first */
};

void strangers_add(struct strangers *all, struct stranger *s, void *conn);
/* Removes a connection that has sent its proof, or is closed. It need not be in
 * the list. */
void strangers_remove(struct strangers *all, struct stranger *s);
/* Returns the oldest connection, as given to strangers_add(), or NULL. */
void *strangers_oldest(const struct strangers *all);
/* Returns the connection to close if that many ranks may connect at the same
 * time; NULL: there are not too many. */
void *strangers_surplus(const struct strangers *all, unsigned ranks);

#endif
