/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts that fell silent while there is data for them. The kernel would give up
 * after a quarter of an hour; and TCP_USER_TIMEOUT would end connections to
 * ranks that only take nothing for a while, whose hosts do answer.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "src/base/clock.h"
#include "src/base/tcp.h"
#include "transports/tcp/tcp.h"

#define LOOK_MS 1000

static void look(struct tcp_conn *c, uint64_t now_ms)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	uint64_t since = now_ms - c->looked_ms;

	c->looked_ms = now_ms;
	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	    !info.tcpi_unacked || info.tcpi_last_ack_recv <= since) {
		c->heard_ms = now_ms;
		return;
	}
	if (now_ms - c->heard_ms > TCP_SILENT_MS)
		tcp_link_fail(c->link, DICOMM_ERR_REMOTE,
			      "its host has not answered for %d s",
			      TCP_SILENT_MS / 1000);
}

void tcp_watch(struct tp_device *dev)
{
	uint64_t now_ms = clock_ms();

	for (int r = 0; r < dev->config.ranks; r++) {
		struct tcp_link *link = &dev->links[r];

		for (uint32_t i = 0; i < link->count; i++) {
			struct tcp_conn *c = link->conn[i];

			if (c && c->state == TCP_OPEN &&
			    now_ms - c->looked_ms >= LOOK_MS)
				look(c, now_ms);
		}
	}
}
