/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel tells of connections.
 *
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
/* How often to try for the lock. A thread that closes or aborts may have it for
 * seconds; others are out soon. */
#define TRIES 100

static bool read_info(const struct tcp_conn *c, struct tcp_info *info)
{
	socklen_t len = sizeof(*info);

	*info = (struct tcp_info){.tcpi_total_retrans = 0};
	return !getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, info, &len);
}

static void check(struct tcp_conn *c, uint64_t now_ms)
{
	struct tcp_info info;
	uint64_t since = now_ms - c->checked_ms;

	c->checked_ms = now_ms;
	if (!read_info(c, &info) || !info.tcpi_unacked ||
	    info.tcpi_last_ack_recv <= since) {
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

void tcp_watch_end(struct tcp_conn *c)
{
	struct tcp_info info;

	if (read_info(c, &info))
		c->dev->ended_retransmits += info.tcpi_total_retrans;
}

static uint64_t count(const struct tp_device *dev)
{
	uint64_t n = dev->ended_retransmits;
	struct tcp_info info;

	for (const struct tcp_conn *c = dev->conns; c; c = c->next)
		if (c->state == TCP_OPEN && read_info(c, &info))
			n += info.tcpi_total_retrans;
	return n;
}

uint64_t tcp_watch_retransmits(struct tp_device *dev)
{
	for (int i = 0; i < TRIES; i++) {
		if (framed_try_lock(&dev->base)) {
			atomic_store(&dev->retransmits, count(dev));
			framed_unlock(&dev->base);
			break;
		}
		sched_yield();
	}
	return atomic_load(&dev->retransmits);
}
