/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects channels at their first message. */
#include "src/core/connect.h"

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/message.h"
#include "src/core/paths.h"
#include "src/core/wait.h"

dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c)
{
	struct channel *channel = &peer->channel[c];
	struct waiter w = {0};
	struct tp_outbox out = {0};
	dicomm_result_t status;
	uint64_t deadline =
		clock_ns() + (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) *
				     UINT64_C(1000000000);

	if (channel->out.released)
		return DICOMM_SUCCESS;
	while ((status = peer->transport->connect_out(peer->tp, c, &out)) ==
	       DICOMM_AGAIN) {
		if (fault_is(comm))
			return fault_report(comm);
		/* `cancelled` cancels an initialization; later it has no
		 * meaning. */
		if (atomic_load(&comm->cancelled) &&
		    atomic_load(&comm->state) == COMM_STARTING)
			return FAIL(DICOMM_ERR_ABORTED,
				    "connect to rank %d over %s: aborted",
				    peer->rank, peer->transport->name);
		if (wait_is_due(&w) && comm_has_left(comm, peer->rank))
			return FAIL(DICOMM_ERR_REMOTE,
				    "connect to rank %d over %s: it has left",
				    peer->rank, peer->transport->name);
		if (clock_ns() > deadline)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "connect to rank %d over %s: timed out",
				    peer->rank, peer->transport->name);
		wait_pause(comm, &w);
	}
	TRY(status);
	channel->out = out;
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c)
{
	struct channel *channel = &peer->channel[c];

	(void)comm;
	TRY(peer->transport->connect_in(peer->tp, c, &channel->in));
	/* Empty messages are never sent, but they have numbers and so use
	 * credits. Return these credits. */
	peer->transport->release(peer->tp, c, message_done(channel));
	return DICOMM_SUCCESS;
}

void comm_tell_all(struct dicomm_comm *comm, int ms)
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
