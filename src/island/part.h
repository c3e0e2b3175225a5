/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is done between islands for a part of a call, while the vendor's library
 * is at work on the parts before and after it. A rank of the host waits for the
 * end of it; on a rank of a device, its stream does.
 *
 * Threads: the one that makes the call. The driver lets streams go on.
 */
#ifndef DICOMM_ISLAND_PART_H
#define DICOMM_ISLAND_PART_H

#include "src/core/comm.h"
#include "src/stream/item.h"

/* Parts of a call that have begun and not ended, when the next one begins */
#define ISLAND_LEAD 2
/* Most parts of a call: fewer than can be under way, so that it never waits for
 * its own. */
#define ISLAND_CALL_PARTS 64

struct island_part;

/* Those of a communicator; at first all 0 */
struct island_parts {
	struct island_part *part;
	size_t n;
};

/* Makes what parts need, while no stream is blocked. */
dicomm_result_t island_parts_open(struct island_parts *parts,
				  struct dicomm_comm *comm);
/* No part is under way. */
void island_parts_close(struct island_parts *parts);

/* Queues these calls, which start together when the stream has come to here.
 * Takes over their counts, also on failure. A call on a device waits if too
 * many parts of earlier ones are under way. */
dicomm_result_t island_part_begin(struct island_parts *parts,
				  struct item *items, size_t n,
				  dicomm_stream_t stream,
				  struct island_part **out);
/* The same for calls on several streams of devices: adds a part of the
 * communicator to the list, unless that has one for this stream; then queues
 * the calls, if the status of that is success. Of host ranks there is one
 * part. */
dicomm_result_t island_part_take(struct island_parts *parts,
				 struct dicomm_comm *comm,
				 dicomm_stream_t stream,
				 struct island_part **list);
dicomm_result_t island_part_submit(struct island_part *list, struct item *items,
				   size_t n, dicomm_result_t taken);
/* What is queued on the streams of the list from now on comes after these
 * calls. A rank of the host waits for them; returns their status. */
dicomm_result_t island_part_end(struct island_part *list);

#endif
