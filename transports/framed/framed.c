/* SPDX-License-Identifier: BSD-3-Clause */
/* Opened and closed; the operations of struct transport that move messages. */
#include "transports/framed/framed.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"

/* ---- opened, closed ---- */

dicomm_result_t framed_open(struct framed *f, const struct framed_ops *ops,
			    const struct tp_config *config)
{
	size_t channels = (size_t)config->ranks * TP_CLASSES;

	f->ops = ops;
	f->config = *config;
	atomic_flag_clear(&f->busy);
	if (sodium_init() < 0)
		return FAIL(DICOMM_ERR_SYSTEM, "%s: libsodium: cannot start",
			    ops->name);
	randombytes_buf(f->seal_key, sizeof(f->seal_key));
	randombytes_buf(&f->token, sizeof(f->token));
	f->network = framed_address_network();
	f->in = calloc(channels, sizeof(*f->in));
	f->out = calloc(channels, sizeof(*f->out));
	f->links = calloc((size_t)config->ranks, ops->link_bytes);
	if (!f->in || !f->out || !f->links)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: no memory for %d ranks",
			    ops->name, config->ranks);
	for (uint32_t r = 0; r < (uint32_t)config->ranks; r++) {
		framed_link_of(f, r)->dev = framed_device(f);
		framed_link_of(f, r)->rank = r;
	}
	return DICOMM_SUCCESS;
}

void framed_free_channels(struct framed *f, uint32_t rank)
{
	for (uint32_t id = rank * TP_CLASSES; id < (rank + 1) * TP_CLASSES;
	     id++) {
		struct framed_in *in = atomic_exchange(&f->in[id], NULL);
		struct framed_out *out = atomic_exchange(&f->out[id], NULL);

		if (in) {
			framed_credits_cancel(in);
			framed_inbox_free(in);
		}
		free(out);
	}
}

void framed_close(struct framed *f)
{
	struct tp_peer *peer;

	for (int r = 0; f->in && f->out && r < f->config.ranks; r++)
		framed_free_channels(f, (uint32_t)r);
	while ((peer = f->peers)) {
		f->peers = peer->next;
		free(peer);
	}
	free((void *)f->in);
	free((void *)f->out);
	free(f->links);
}

bool framed_lock_to_abort(struct framed *f)
{
	uint64_t start = clock_ns();

	while (!framed_try_lock(f)) {
		if (clock_ns() - start > FRAMED_DRAIN_NS) {
			log_warn("%s: rank %d: abort: another thread has "
				 "been polling for too long",
				 f->ops->name, f->config.rank);
			return false;
		}
		sched_yield();
	}
	return true;
}

struct tp_peer *framed_peer_make(struct framed *f, int rank, size_t bytes)
{
	struct tp_peer *peer = calloc(1, bytes);

	if (!peer)
		return NULL;
	peer->dev = framed_device(f);
	peer->rank = rank;
	peer->next = f->peers;
	f->peers = peer;
	return peer;
}

void framed_peer_close(struct tp_peer *peer)
{
	struct tp_peer **at;
	struct framed *f;

	if (!peer)
		return;
	f = framed_of(peer->dev);
	framed_lock(f);
	f->ops->close_links(peer->dev, (uint32_t)peer->rank,
			    (uint32_t)peer->rank + 1);
	framed_unlock(f);
	at = &f->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	free(peer);
}

uint64_t framed_memory(const struct framed *f)
{
	uint64_t slot = sizeof(struct tp_line) + sizeof(uint64_t) +
			f->config.slot_bytes;
	uint64_t inbox = sizeof(struct framed_in) + f->config.slots * slot;
	int channels = f->config.ranks * TP_CLASSES;
	uint64_t bytes = (uint64_t)channels * 2 * sizeof(void *) +
			 (uint64_t)f->config.ranks * f->ops->link_bytes;

	for (int id = 0; id < channels; id++) {
		bytes += atomic_load(&f->in[id]) ? inbox : 0;
		bytes += atomic_load(&f->out[id]) ? sizeof(struct framed_out)
						  : 0;
	}
	return bytes;
}

/* ---- connected ---- */

void framed_limits(const struct tp_peer *peer, struct tp_limits *limits)
{
	const struct framed *f = framed_of(peer->dev);

	/* Credits are sent at every quarter of the slots; see release(). Where
	 * it congests, the request for a reference queues up behind the data
	 * that this rank sends: when all ranks send to all others, that doubled
	 * the time. */
	*limits = (struct tp_limits){.eager_bytes = f->config.slot_bytes,
				     .slots = f->config.slots,
				     .window = f->config.slots / 2 + 1,
				     .spin = 1,
				     .prefers_eager = f->congests,
				     .congests = f->congests};
}

/* Lock held. */
static dicomm_result_t open_channel(struct tp_peer *peer, enum tp_class c)
{
	struct framed *f = framed_of(peer->dev);
	uint32_t rank = (uint32_t)peer->rank;

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	if (!framed_is_self(peer))
		return f->ops->open_channel(peer, c);
	return framed_in_of(f, rank, c) || framed_inbox_make(f, rank, c)
		       ? DICOMM_SUCCESS
		       : FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory",
			      f->ops->name);
}

dicomm_result_t framed_connect_out(struct tp_peer *peer, enum tp_class c,
				   struct tp_outbox *outbox)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_out *out = peer->out[c];
	dicomm_result_t status;

	if (out) {
		outbox->released = &out->released;
		return framed_is_aborted(f) ? DICOMM_ERR_ABORTED
					    : DICOMM_SUCCESS;
	}
	out = calloc(1, sizeof(*out));
	if (!out)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory",
			    f->ops->name);
	out->limit = f->config.slots;
	framed_lock(f);
	status = open_channel(peer, c);
	if (status == DICOMM_SUCCESS) {
		atomic_store_explicit(
			&f->out[(uint32_t)peer->rank * TP_CLASSES + c], out,
			memory_order_release);
		peer->out[c] = out;
		outbox->released = &out->released;
	}
	framed_unlock(f);
	if (status != DICOMM_SUCCESS)
		free(out);
	return status;
}

dicomm_result_t framed_connect_in(struct tp_peer *peer, enum tp_class c,
				  struct tp_inbox *inbox)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_in *in = framed_in_of(f, (uint32_t)peer->rank, c);

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	if (!in)
		return DICOMM_AGAIN;
	peer->in[c] = in;
	inbox->lines = (struct tp_line *)(void *)in->slots;
	inbox->line_stride = sizeof(struct tp_line);
	inbox->data = in->data;
	inbox->data_stride = f->config.slot_bytes;
	inbox->slot_mask = f->config.slots - 1;
	return DICOMM_SUCCESS;
}

/* ---- messages ---- */

static bool has_credit(const struct framed *f, struct framed_out *out,
		       uint64_t seq)
{
	if (seq > out->limit)
		out->limit = atomic_load_explicit(&out->released,
						  memory_order_acquire) +
			     f->config.slots;
	return seq <= out->limit;
}

/* From this rank to itself. */
static void put_own(struct framed *f, const struct framed_message *m)
{
	struct framed_in *in =
		framed_in_of(f, (uint32_t)f->config.rank, m->channel_class);

	if (m->bytes)
		memcpy(framed_inbox_place(in, m->seq, m->bytes), m->body,
		       m->bytes);
	framed_inbox_deliver(in, m->seq, m->signature, m->kind, m->len);
}

/* Lock held. */
static dicomm_result_t send_message(struct tp_peer *peer,
				    const struct framed_message *m)
{
	struct framed *f = framed_of(peer->dev);

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	TRY(framed_link_status(framed_link_of(f, (uint32_t)peer->rank)));
	return f->ops->send_message(peer, m);
}

dicomm_result_t framed_put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   uint32_t signature, enum tp_kind kind,
			   const void *body, uint64_t len)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_out *out = peer->out[c];
	struct framed_message m = {.channel_class = (uint8_t)c,
				   .kind = (uint16_t)kind,
				   .signature = signature,
				   .seq = seq,
				   .len = len,
				   .body = body,
				   .bytes = kind == TP_REF ? f->ops->ref_bytes
							   : len};
	dicomm_result_t status;

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	if (__builtin_expect(!out, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "%s: put to rank %d before connect_out",
			    f->ops->name, peer->rank);
	if (__builtin_expect(m.bytes > f->config.slot_bytes, 0))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "%s: put of %" PRIu64 " bytes into a slot of %u",
			    f->ops->name, len, f->config.slot_bytes);
	if (!has_credit(f, out, seq))
		return DICOMM_AGAIN;
	if (framed_is_self(peer)) {
		put_own(f, &m);
		return DICOMM_SUCCESS;
	}
	if (!framed_try_lock(f))
		return DICOMM_AGAIN;
	status = send_message(peer, &m);
	framed_unlock(f);
	return status;
}

static void release_own(struct framed *f, struct framed_in *in, uint64_t seq)
{
	struct framed_out *out = framed_out_of(f, in->rank, in->channel_class);

	in->consumed = seq;
	if (out)
		atomic_store_explicit(&out->released, seq,
				      memory_order_release);
}

dicomm_result_t framed_release(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_in *in = peer->in[c];

	if (!in)
		return DICOMM_SUCCESS;
	if (framed_is_self(peer)) {
		release_own(f, in, seq);
		return DICOMM_SUCCESS;
	}
	framed_lock(f);
	in->consumed = seq;
	if (!framed_is_aborted(f)) {
		if (seq - in->granted >= (f->config.slots + 3) / 4)
			framed_credits_send(in);
		else if (seq != in->granted)
			framed_credits_defer(in);
	}
	framed_unlock(f);
	return DICOMM_SUCCESS;
}

bool framed_flush(struct tp_device *dev)
{
	struct framed *f = framed_of(dev);
	bool all;

	framed_lock(f);
	if (!framed_is_aborted(f))
		framed_credits_send_all(f);
	all = framed_is_aborted(f) || !f->credits_due;
	framed_unlock(f);
	return all;
}
