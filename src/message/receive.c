/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/receive.h"

#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/log.h"

dicomm_result_t message_map(struct dicomm_comm *comm, struct peer *peer,
			    const struct tp_ref *ref, uint64_t bytes,
			    uint64_t len, const void **src)
{
	TRY(peer->transport->map(peer->tp, ref, bytes, src));
	comm->stats.bytes_mapped += len;
	return DICOMM_SUCCESS;
}

dicomm_result_t message_read(struct dicomm_comm *comm, struct peer *peer,
			     enum tp_class c, uint64_t seq,
			     const struct tp_ref *ref, uint64_t at, void *into,
			     uint64_t len)
{
	dicomm_result_t status =
		peer->transport->read(peer->tp, c, seq, ref, at, into, len);

	/* Within a machine, the sender copies what cannot be read. */
	if (status == DICOMM_IN_PROGRESS && peer->transport->intra_node)
		comm->stats.bytes_ring += len;
	else if (status == DICOMM_IN_PROGRESS)
		comm->stats.bytes_rdma += len;
	else if (status == DICOMM_SUCCESS)
		comm->stats.bytes_cma += len;
	return status;
}

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

/* Into the final place of a long message without caching it */
static void copy(const struct dicomm_comm *comm,
		 const struct message_receive *r, void *into, const void *src,
		 uint64_t len)
{
	if (into == r->to && r->ref_bytes >= comm->stream_bytes)
		reduce_copy_stream(into, src, len);
	else
		memcpy(into, src, len);
}

static dicomm_result_t start_piece(struct dicomm_comm *comm,
				   struct message_receive *r, void *into,
				   uint64_t len)
{
	uint64_t at = r->ref_bytes - r->left;
	const void *src;
	dicomm_result_t status =
		message_map(comm, r->peer, &r->ref, r->ref_bytes, len, &src);

	if (status == DICOMM_SUCCESS) {
		copy(comm, r, into, (const uint8_t *)src + at, len);
		return message_intact(r->peer);
	}
	if (status != DICOMM_ERR_UNSUPPORTED)
		return status;
	status = message_read(comm, r->peer, r->class, r->seq, &r->ref, at,
			      into, len);
	if (status == DICOMM_IN_PROGRESS)
		r->reading = len;
	return status;
}

dicomm_result_t message_receive_piece(struct dicomm_comm *comm,
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
		status = start_piece(comm, r, into, *len);
	}
	return status == DICOMM_IN_PROGRESS ? DICOMM_AGAIN : status;
}

void message_receive_moved(struct message_receive *r, uint64_t len)
{
	struct peer *peer = r->peer;

	r->reading = 0;
	r->to += len;
	r->left -= len;
	if (r->left) {
		/* A sender in this process that aborts waits for whoever reads
		 * its memory. */
		peer->transport->release(
			peer->tp, r->class,
			message_done(&peer->channel[r->class]));
		return;
	}
	message_consumed(peer, r->class, r->seq);
	/* Its sender waits for that. */
	peer->transport->flush(peer->device);
	r->seq = 0;
}
