/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts that do not answer while there is data for them. The kernel would give
 * up after a quarter of an hour. TCP_USER_TIMEOUT would also end connections to
 * ranks that receive nothing for a while, though their hosts answer.
 */
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "src/base/clock.h"
#include "transports/tcp/tcp.h"

#define CHECK_MS 1000

static void check(struct tcp_conn *c, uint64_t now_ms)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	uint64_t since = now_ms - c->checked_ms;

	c->checked_ms = now_ms;
	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	    !info.tcpi_unacked || info.tcpi_last_ack_recv <= since) {
		c->answered_ms = now_ms;
		return;
	}
	if (now_ms - c->answered_ms > c->dev->silent_ms)
		framed_link_fail(&c->link->base, DICOMM_ERR_REMOTE,
				 "its host has not answered for %" PRIu64
				 " s (DICOMM_TCP_SILENT_MS)",
				 (now_ms - c->answered_ms) / 1000);
}

void tcp_watch(struct tp_device *dev)
{
	uint64_t now_ms = clock_ms();

	if (!dev->silent_ms)
		return;
	for (int r = 0; r < dev->base.config.ranks; r++) {
		struct tcp_link *link = &dev->links[r];

		for (uint32_t i = 0; i < link->count; i++) {
			struct tcp_conn *c = link->conn[i];

			if (c && c->state == TCP_OPEN &&
			    now_ms - c->checked_ms >= CHECK_MS)
				check(c, now_ms);
		}
	}
}
