/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/message/channel.h"

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/paths.h"
#include "src/core/wait.h"

dicomm_result_t channel_connect_out(struct peer *peer, enum tp_class c)
{
	struct channel *channel = &peer->channel[c];
	struct tp_outbox out = {0};

	if (channel->out.released)
		return DICOMM_SUCCESS;
	CANCEL_HELD();
	TRY(peer->transport->connect_out(peer->tp, c, &out));
	channel->out = out;
	return DICOMM_SUCCESS;
}

dicomm_result_t channel_connect_in(struct dicomm_comm *comm, struct peer *peer,
				   enum tp_class c)
{
	struct channel *channel = &peer->channel[c];

	/* One between neighbours holds cancellation off where it does more
	 * than look. */
	if (!peer->transport->intra_node)
		data_path_hold_cancel(&comm->path);
	TRY(peer->transport->connect_in(peer->tp, c, &channel->in));
	/* Empty messages are never sent, but they have numbers and so use
	 * credits. Return these credits. */
	message_release(peer, c);
	return DICOMM_SUCCESS;
}

void channel_flush_all(struct dicomm_comm *comm, int ms)
{
	struct waiter w = {0};
	uint64_t end = 0;

	while (!comm_flush(comm) && !fault_is(comm)) {
		if (!end)
			end = clock_ms() + (uint64_t)ms;
		else if (clock_ms() > end)
			return;
		wait_pause(comm, &w);
	}
}

void message_release(const struct peer *peer, enum tp_class c)
{
	peer->transport->release(peer->tp, c, message_done(&peer->channel[c]));
}

dicomm_result_t message_malformed(int rank, const struct tp_line *line)
{
	return FAIL(DICOMM_ERR_INTERNAL,
		    "rank %d sent a malformed message: kind %u, signature %#x, "
		    "%llu bytes",
		    rank, line->kind, line->signature,
		    (unsigned long long)line->len);
}
