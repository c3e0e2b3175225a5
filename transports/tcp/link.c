/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the way to a rank: whether it is there, has broken, or ends. */
#include <errno.h>
#include <inttypes.h>
#include <sys/epoll.h>

#include "src/base/log.h"
#include "src/base/tcp.h"
#include "transports/tcp/tcp.h"

void tcp_link_drop(struct tcp_link *link)
{
	for (uint32_t i = 0; i < TCP_CONNECTIONS; i++)
		if (link->conn[i])
			tcp_socket_drop(link->conn[i]);
	if (link->retry)
		link->base.dev->pending--;
	link->retry = link->ready = false;
}

static bool announce(struct tcp_link *link)
{
	bool all = true;

	for (uint8_t c = 0; c < TP_CLASSES; c++) {
		struct tcp_head head = {.what = TCP_FRAME_CHANNEL,
					.channel_class = c};

		if (!link->announce[c] || !link->conn[0])
			continue;
		if (tcp_send_control(link->conn[0], &head, NULL, 0) ==
		    DICOMM_SUCCESS)
			link->announce[c] = false;
		all &= !link->announce[c];
	}
	return all;
}

void tcp_link_ready(struct tcp_link *link)
{
	link->ready = true;
	link->attempts = 0;
	link->base.dev->base.deferred |= !announce(link);
	log_debug("tcp: rank %d and rank %" PRIu32 " have %" PRIu32
		  " connections",
		  link->base.dev->base.config.rank, link->base.rank,
		  link->count);
}

void tcp_link_lost(struct tcp_conn *c, int error)
{
	struct tcp_link *link = c->link;
	char why[sizeof(link->base.cause)] = "the other side has closed it";

	if (!link || c->close_received || link->base.peer_closed ||
	    link->close_sent[c->index]) {
		tcp_socket_drop(c);
		return;
	}
	if (error)
		tcp_reason(error, why, sizeof(why));
	if (error == EBADMSG)
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE,
				 "what came from it was changed on the way "
				 "(DICOMM_ENCRYPT)");
	else
		framed_link_fail(&link->base, DICOMM_ERR_REMOTE,
				 "the connection has ended: %s", why);
}

void tcp_link_on_close(struct tcp_conn *c)
{
	struct tcp_link *link = c->link;

	if (c->close_received)
		return;
	c->close_received = true;
	if (++link->closes < link->count)
		return;
	atomic_store(&link->base.peer_closed, true);
	link->ack_due = link->base.dev->base.deferred = true;
}

bool tcp_link_is_quiet(const struct tcp_link *link)
{
	return !link->open || atomic_load(&link->base.status) ||
	       link->base.peer_closed || link->close_acked;
}

void tcp_link_say_close(struct tcp_link *link)
{
	struct tcp_head head = {.what = TCP_FRAME_CLOSE};

	if (tcp_link_is_quiet(link))
		return;
	for (uint32_t i = 0; i < link->count; i++) {
		struct tcp_conn *c = link->conn[i];

		if (c && c->state == TCP_OPEN && !link->close_sent[i] &&
		    !tcp_send_is_pending(c))
			link->close_sent[i] =
				tcp_send_control(c, &head, NULL, 0) ==
				DICOMM_SUCCESS;
	}
}

/* True: there is more to do. */
static bool flush_one(struct tcp_link *link)
{
	struct tcp_head head = {.what = TCP_FRAME_CLOSE_ACK};
	bool more = link->ready && !announce(link);

	if (link->ack_due && link->conn[0] && !link->close_sent[0] &&
	    tcp_send_control(link->conn[0], &head, NULL, 0) != DICOMM_SUCCESS)
		return true;
	link->ack_due = false;
	return more;
}

void tcp_link_flush_deferred(struct tp_device *dev)
{
	dev->base.deferred = false;
	for (int r = 0; r < dev->base.config.ranks; r++)
		dev->base.deferred |= flush_one(&dev->links[r]);
}
