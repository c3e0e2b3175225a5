/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/slice.h"

#include <string.h>

#include "src/base/log.h"
#include "src/core/memory.h"
#include "src/message/memory_ref.h"
#include "src/message/send.h"

/* ---- send ---- */

/* Makes the reference to send. Returns false if the bytes go in a slot. */
static bool offer(const struct message_slice *m, struct tp_ref *ref)
{
	const struct peer *peer = m->peer;
	const struct transport *t = peer->transport;

	if (m->bytes <= peer->limits.eager_bytes &&
	    (m->way == MESSAGE_COPY ||
	     (m->way == MESSAGE_BEST &&
	      !message_prefers_ref(peer, m->whole, m->comm->map_threshold))))
		return false;
	if (t->offer(peer->tp, m->from, m->whole, m->want, ref))
		return true;
	return m->way == MESSAGE_REF &&
	       t->offer(peer->tp, m->from, m->whole, TP_WANT_ANYHOW, ref);
}

dicomm_result_t message_slice_send(const struct message_slice *m,
				   uint64_t *sent)
{
	struct peer *peer = m->peer;
	struct channel *channel = &peer->channel[m->class];
	uint32_t signature = m->signature;
	enum tp_kind kind = TP_DATA;
	const void *body = m->from;
	uint64_t len = m->bytes;
	dicomm_result_t status;
	struct tp_ref ref;

	*sent = len;
	if (m->mem_ref) {
		signature = memory_ref_signature(signature);
		body = m->mem_ref;
		len = sizeof(*m->mem_ref);
	} else if (offer(m, &ref)) {
		kind = TP_REF;
		body = &ref;
		*sent = len = m->whole;
	} else if (len > peer->limits.eager_bytes || m->way == MESSAGE_REF) {
		return FAIL(DICOMM_ERR_INTERNAL,
			    "send to rank %d: %s does not reach %llu bytes at "
			    "%p",
			    peer->rank, peer->transport->name,
			    (unsigned long long)m->whole, m->from);
	}
	status = peer->transport->put(peer->tp, m->class, m->seq, signature,
				      kind, body, len);
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return status;
	if (m->seq > channel->out_last)
		channel->out_last = m->seq;
	/* A reference leaves the bytes where they are. */
	return body == m->from ? status : DICOMM_IN_PROGRESS;
}

/* ---- receive ---- */

static struct channel *channel_of(const struct message_slice *m)
{
	return &m->peer->channel[m->class];
}

static dicomm_result_t make_bounces(struct dicomm_comm *comm)
{
	struct bounce_buffers *buffers = &comm->bounce_buffers;

	if (buffers->memory)
		return DICOMM_SUCCESS;
	TRY(comm_mem_alloc(comm, (size_t)COMM_BOUNCES * comm->slot_bytes,
			   "bounce buffers", &buffers->memory,
			   &buffers->handles));
	for (size_t i = 0; i < COMM_BOUNCES; i++)
		buffers->of[i].at = buffers->memory + i * comm->slot_bytes;
	return DICOMM_SUCCESS;
}

/* AGAIN: all bounce buffers are in use. */
static dicomm_result_t find_bounce(struct message_slice *m)
{
	struct bounce_buffer *b = m->comm->bounce_buffers.of;

	TRY(make_bounces(m->comm));
	for (size_t i = 0; i < COMM_BOUNCES; i++)
		if (!b[i].channel) {
			m->bounce = &b[i];
			return DICOMM_SUCCESS;
		}
	return DICOMM_AGAIN;
}

/* Reads bytes that cannot be mapped. */
static dicomm_result_t read_to(struct message_slice *m,
			       const struct tp_ref *ref, uint64_t at,
			       uint64_t len)
{
	const struct peer *peer = m->peer;
	dicomm_stats_t *stats = &m->comm->stats;
	void *into = m->into;
	dicomm_result_t status;

	if (!into) {
		TRY(find_bounce(m));
		into = m->bounce->at;
		if (len > m->comm->slot_bytes)
			len = m->bytes = m->comm->slot_bytes;
	}
	m->src = into;
	status = peer->transport->read(peer->tp, m->class, m->seq, ref, at,
				       into, len);
	if (status == DICOMM_SUCCESS)
		stats->bytes_cma += len;
	if (status != DICOMM_IN_PROGRESS)
		return status;
	if (m->bounce) {
		m->bounce->channel = channel_of(m);
		m->bounce->seq = m->seq;
	}
	/* Within a machine, the sender copies what cannot be read. */
	if (peer->transport->intra_node)
		stats->bytes_ring += len;
	else
		stats->bytes_rdma += len;
	return status;
}

dicomm_result_t message_slice_load(struct message_slice *m,
				   const struct tp_ref *ref, uint64_t of,
				   uint64_t at, uint64_t len)
{
	const struct peer *peer = m->peer;
	dicomm_result_t status =
		peer->transport->map(peer->tp, ref, of, &m->src);

	if (status == DICOMM_ERR_UNSUPPORTED)
		return read_to(m, ref, at, len);
	TRY(status);
	m->src = (const uint8_t *)m->src + at;
	m->mapped = true;
	m->comm->stats.bytes_mapped += m->bytes;
	return DICOMM_SUCCESS;
}

/* How far one read reaches that begins with this slice */
static uint64_t reach_of(const struct message_slice *m)
{
	uint64_t left = m->flow->bytes - m->at;
	uint64_t ahead = m->ahead > m->bytes ? m->ahead : m->bytes;

	return m->at + (left < ahead ? left : ahead);
}

/* Finds a slice of a message for which one reference has arrived. */
static dicomm_result_t find_part(struct message_slice *m)
{
	struct message_flow *f = m->flow;
	dicomm_result_t status;

	/* The peer decides whether it sends the whole; the plans of both say
	 * how long the slices are. */
	if (m->at > f->bytes || m->bytes > f->bytes - m->at)
		return DICOMM_ERR_INVALID_USAGE;
	if (m->ahead && m->at < f->read) {
		m->src = m->into;
		return m->at < f->arrived ? DICOMM_SUCCESS : DICOMM_IN_PROGRESS;
	}
	status = message_slice_load(m, &f->ref, f->bytes, m->at,
				    reach_of(m) - m->at);
	if (!m->ahead || m->mapped)
		return status;
	if (status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		f->read = reach_of(m);
	if (status == DICOMM_SUCCESS)
		f->arrived = f->read;
	return status;
}

/* A neighbour has said where the bytes are. */
static dicomm_result_t find_in_memory(struct message_slice *m,
				      const uint8_t *body, uint64_t len)
{
	struct memory_place place = {NULL, m->mapped, m->seen};
	struct memory_ref ref;

	if (!body || len != sizeof(ref))
		return DICOMM_ERR_INVALID_USAGE;
	memcpy(&ref, body, sizeof(ref));
	if (ref.bytes != m->bytes)
		return DICOMM_ERR_INVALID_USAGE;
	TRY(memory_ref_locate(m->comm, m->peer, &ref, &place));
	m->src = place.at;
	m->mapped = place.mapped;
	m->seen = place.seen;
	return DICOMM_SUCCESS;
}

static dicomm_result_t find(struct message_slice *m, const struct tp_line *line)
{
	const uint8_t *body = message_payload(channel_of(m), m->seq, line);
	struct message_flow *f = m->flow;
	uint64_t len = line->len;
	struct tp_ref ref;

	if (m->peer->has_peer_access &&
	    line->signature == memory_ref_signature(m->signature))
		return find_in_memory(m, body, len);
	if (!body && line->kind != TP_REF)
		return message_malformed(m->peer->rank, line);
	if (line->signature != m->signature)
		return DICOMM_ERR_INVALID_USAGE;
	if (len == m->bytes && body) {
		m->src = body;
		m->comm->stats.bytes_ring += len;
		return DICOMM_SUCCESS;
	}
	if (len == m->bytes) {
		memcpy(&ref, line->room, sizeof(ref));
		return message_slice_load(m, &ref, len, 0, len);
	}
	if (body || m->at || len != m->whole)
		return DICOMM_ERR_INVALID_USAGE;
	f->whole = true;
	f->read = f->arrived = 0;
	f->bytes = len;
	memcpy(&f->ref, line->room, sizeof(f->ref));
	return find_part(m);
}

dicomm_result_t message_slice_find(struct message_slice *m)
{
	struct tp_line *line;

	if (m->at && m->flow->whole)
		return find_part(m);
	TRY(message_look(m->comm, m->peer, m->class, m->seq, &line));
	return find(m, line);
}

dicomm_result_t message_slice_arrived(struct message_slice *m)
{
	struct message_flow *f = m->flow;
	bool ahead = f->whole && m->ahead;
	dicomm_result_t status;

	m->src = m->into;
	if (ahead && m->at < f->arrived)
		return DICOMM_SUCCESS;
	/* A read is reported with the oldest slice that it has not delivered
	 * yet. */
	status = m->peer->transport->read_status(m->peer->tp, m->class, m->seq);
	if (status != DICOMM_SUCCESS)
		return status == DICOMM_IN_PROGRESS ? DICOMM_AGAIN : status;
	if (ahead)
		f->arrived = reach_of(m);
	if (m->into)
		return DICOMM_SUCCESS;
	m->bounce = m->comm->bounce_buffers.of;
	while (m->bounce->channel != channel_of(m) || m->bounce->seq != m->seq)
		m->bounce++;
	m->src = m->bounce->at;
	return DICOMM_SUCCESS;
}
