/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/send.h"

#include "src/base/log.h"
#include "src/message/memory_ref.h"

dicomm_result_t message_put(struct peer *peer, enum tp_class c,
			    uint32_t signature, enum tp_kind kind,
			    const void *body, uint64_t len, uint64_t *until)
{
	struct channel *channel = &peer->channel[c];

	if (!channel->out.released)
		TRY(channel_connect_out(peer, c));
	if (!message_has_credit(peer, channel, channel->out_base + 1))
		return DICOMM_AGAIN;
	return message_put_next(peer, c, signature, kind, body, len, until);
}

bool message_may_refer(const struct peer *peer, const void *from,
		       uint64_t bytes, enum tp_want want)
{
	struct tp_ref ref;

	return peer->transport->offer(peer->tp, from, bytes, want, &ref);
}

static dicomm_result_t put_ref(struct message_send *s, const struct tp_ref *ref)
{
	TRY(message_put(s->peer, s->class, s->signature, TP_REF, ref, s->bytes,
			NULL));
	s->moved = s->bytes;
	s->until = s->peer->channel[s->class].out_base;
	return DICOMM_SUCCESS;
}

dicomm_result_t message_send_ref(struct message_send *s,
				 const struct memory_ref *mem_ref)
{
	TRY(message_put(s->peer, s->class, memory_ref_signature(s->signature),
			TP_DATA, mem_ref, sizeof(*mem_ref), NULL));
	s->moved = s->bytes;
	s->until = s->peer->channel[s->class].out_base;
	return DICOMM_SUCCESS;
}

/* Between memory of devices all bytes go by reference. */
static bool must_refer(const struct peer *peer)
{
	return !peer->limits.eager_bytes;
}

static bool offer(const struct message_send *s, struct tp_ref *ref)
{
	const struct peer *peer = s->peer;

	if (!must_refer(peer) &&
	    !message_prefers_ref(peer, s->bytes, s->threshold))
		return false;
	if (peer->transport->offer(peer->tp, s->from, s->bytes, TP_WANT_COPY,
				   ref))
		return true;
	return must_refer(peer) &&
	       peer->transport->offer(peer->tp, s->from, s->bytes,
				      TP_WANT_ANYHOW, ref);
}

dicomm_result_t message_send_turn(struct message_send *s, bool *moved)
{
	const struct peer *peer = s->peer;
	struct tp_ref ref;

	if (!s->moved && s->bytes && offer(s, &ref)) {
		TRY(put_ref(s, &ref));
		*moved = true;
	}
	if (s->moved < s->bytes && must_refer(peer))
		return FAIL(DICOMM_ERR_INTERNAL,
			    "send to rank %d: %s does not reach %llu bytes at "
			    "%p",
			    peer->rank, peer->transport->name,
			    (unsigned long long)s->bytes,
			    (const void *)s->from);
	for (int i = 0; s->moved < s->bytes && i < MESSAGE_BUDGET; i++) {
		uint64_t len = s->bytes - s->moved;

		if (len > peer->limits.eager_bytes)
			len = peer->limits.eager_bytes;
		TRY(message_put(s->peer, s->class, s->signature, TP_DATA,
				s->from + s->moved, len, &s->until));
		*moved = true;
		s->moved += len;
	}
	return s->moved < s->bytes ? DICOMM_AGAIN : DICOMM_SUCCESS;
}
