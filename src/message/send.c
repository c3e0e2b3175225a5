/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/send.h"

#include "src/base/log.h"
#include "src/message/channel.h"

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

dicomm_result_t message_send_turn(struct message_send *s, bool *moved)
{
	const struct peer *peer = s->peer;
	struct tp_ref ref;

	if (!s->moved && message_prefers_ref(peer, s->bytes, s->threshold) &&
	    peer->transport->offer(peer->tp, s->from, s->bytes, TP_WANT_COPY,
				   &ref)) {
		TRY(put_ref(s, &ref));
		*moved = true;
	}
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
