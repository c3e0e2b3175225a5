/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/receive.h"

#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/log.h"
#include "src/message/slice.h"

dicomm_result_t message_receive_take(struct message_receive *r, uint64_t seq,
				     const struct tp_line *line,
				     const uint8_t **body)
{
	*body = message_payload(&r->peer->channel[r->class], seq, line);
	if (line->signature != r->signature || !line->len ||
	    line->len > r->left ||
	    (!*body && (line->kind != TP_REF || line->len != r->left)))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "rank %d sent %llu bytes of kind %u, signature "
			    "%#x, and has %llu to send",
			    r->peer->rank, (unsigned long long)line->len,
			    line->kind, line->signature,
			    (unsigned long long)r->left);
	if (*body)
		return DICOMM_SUCCESS;
	memcpy(&r->ref, line->room, sizeof(r->ref));
	r->ref_bytes = line->len;
	r->seq = seq;
	return DICOMM_SUCCESS;
}

static dicomm_result_t start_piece(struct dicomm_comm *comm,
				   struct message_receive *r, void *into,
				   uint64_t *len)
{
	struct message_slice m = {.comm = comm,
				  .peer = r->peer,
				  .class = r->class,
				  .seq = r->seq,
				  .bytes = *len,
				  .into = into};
	dicomm_result_t status = message_slice_load(
		&m, &r->ref, r->ref_bytes, r->ref_bytes - r->left, *len);

	*len = m.bytes;
	r->src = m.src;
	r->mapped = m.mapped;
	r->bounce = m.bounce;
	if (status == DICOMM_IN_PROGRESS)
		r->reading = *len;
	return status;
}

dicomm_result_t message_receive_find(struct dicomm_comm *comm,
				     struct message_receive *r, void *into,
				     uint64_t most, uint64_t *len)
{
	dicomm_result_t status;

	if (r->reading) {
		*len = r->reading;
		status = r->peer->transport->read_status(r->peer->tp, r->class,
							 r->seq);
	} else {
		*len = r->left < most ? r->left : most;
		status = start_piece(comm, r, into, len);
	}
	return status == DICOMM_IN_PROGRESS ? DICOMM_AGAIN : status;
}

/* Were the bytes that have been loaded those that were sent? */
static dicomm_result_t check_source(const struct message_receive *r)
{
	return r->mapped ? message_intact(r->peer) : DICOMM_SUCCESS;
}

dicomm_result_t message_receive_piece(struct dicomm_comm *comm,
				      struct message_receive *r, void *into,
				      uint64_t most, uint64_t *len)
{
	TRY(message_receive_find(comm, r, into, most, len));
	if (into == r->src)
		return DICOMM_SUCCESS;
	/* Into the final place of a long message without caching it */
	if (into == r->to && r->ref_bytes >= comm->stream_bytes)
		reduce_copy_stream(into, r->src, *len);
	else
		memcpy(into, r->src, *len);
	return check_source(r);
}

/* These bytes of the reference are done with. */
static void advance(struct message_receive *r, uint64_t len)
{
	message_bounce_free(r->bounce);
	r->bounce = NULL;
	r->reading = 0;
	r->to += len;
	r->left -= len;
	if (r->left)
		message_release(r->peer, r->class);
}

dicomm_result_t message_receive_taken(struct message_receive *r, uint64_t len)
{
	TRY(check_source(r));
	advance(r, len);
	return DICOMM_SUCCESS;
}

void message_receive_moved(struct message_receive *r, uint64_t len)
{
	advance(r, len);
	if (r->left)
		return;
	message_consumed(r->peer, r->class, r->seq);
	/* Its sender waits for that. */
	r->peer->transport->flush(r->peer->device);
	r->seq = 0;
}
