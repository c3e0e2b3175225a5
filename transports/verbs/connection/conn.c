/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP connections between ranks. */
#include "transports/verbs/connection/conn.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/descriptors.h"
#include "src/base/epoll_set.h"
#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/open.h"

struct verbs_conns verbs_conns = {.epoll_fd = -1};

/* Raise the limit of open files, so that the program has as many descriptors
 * left as before. Each connected peer takes some. */
static void make_room(int fd)
{
	uint64_t before = descriptors_limit(), limit;
	uint64_t needed = (uint64_t)fd + DESCRIPTORS_OF_OTHERS;

	if (before == UINT64_MAX || needed < before)
		return;
	limit = descriptors_raise(before + needed);
	if (limit > before)
		log_info("verbs: limit of open files raised to %" PRIu64,
			 limit);
}

struct verbs_conn *verbs_conn_add(int fd, enum verbs_conn_stage stage,
				  uint32_t events)
{
	struct verbs_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	make_room(fd);
	c->fd = fd;
	c->stage = stage;
	c->id = ++verbs_conns.last_id;
	if (epoll_set_add(verbs_conns.epoll_fd, fd, events,
			  (epoll_data_t){.u64 = c->id}) < 0) {
		free(c);
		return NULL;
	}
	c->next = verbs_conns.first;
	verbs_conns.first = c;
	return c;
}

void verbs_conn_watch(struct verbs_conn *c, uint32_t events)
{
	epoll_set_change(verbs_conns.epoll_fd, c->fd, events,
			 (epoll_data_t){.u64 = c->id});
}

bool verbs_channel_is_known(const struct verbs_channel *channel)
{
	return !channel->in ||
	       atomic_load(&channel->dev->in[channel->id]) == channel;
}

void verbs_conn_drop(struct verbs_conn *c)
{
	struct verbs_conn **at = &verbs_conns.first;
	struct verbs_channel *channel = c->channel;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	strangers_remove(&verbs_conns.unproved, &c->stranger);
	if (channel)
		channel->conn = NULL;
	if (channel && !verbs_channel_is_known(channel))
		verbs_channel_close(channel);
	epoll_set_close(verbs_conns.epoll_fd, c->fd);
	sodium_memzero(c, sizeof(*c));
	free(c);
}

struct verbs_conn *verbs_conn_find(uint64_t id)
{
	struct verbs_conn *c = verbs_conns.first;

	while (c && c->id != id)
		c = c->next;
	return c;
}

bool verbs_conn_read(struct verbs_conn *c, bool *ended)
{
	uint8_t *at = (uint8_t *)&c->msg + c->have;
	ssize_t n = recv(c->fd, at, sizeof(c->msg) - c->have, 0);

	*ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (n > 0)
		c->have += (size_t)n;
	return c->have == sizeof(c->msg);
}

/* Few messages go over a connection, so the socket buffer has room for them. */
bool verbs_conn_write(struct verbs_conn *c, const struct verbs_connect_msg *msg)
{
	return send(c->fd, msg, sizeof(*msg), MSG_NOSIGNAL) ==
	       (ssize_t)sizeof(*msg);
}

struct verbs_qp *verbs_conn_awaiting(const uint8_t challenge[VERBS_NONCE],
				     unsigned index)
{
	for (struct verbs_conn *c = verbs_conns.first; c; c = c->next) {
		struct verbs_channel *channel = c->channel;

		if (c->stage != CONN_AWAITING_RDMA_CM || !channel->in ||
		    index >= channel->qps || channel->qp[index].cm ||
		    memcmp(channel->challenge, challenge, VERBS_NONCE) != 0)
			continue;
		/* Tell the device of the channel before it is CHANNEL_READY:
		 * its first message may arrive before librdmacm reports that it
		 * is connected. */
		atomic_store_explicit(&channel->dev->in[channel->id], channel,
				      memory_order_release);
		return &channel->qp[index];
	}
	return NULL;
}

void verbs_conn_forget(struct verbs_channel *channel)
{
	if (channel->conn)
		verbs_conn_drop(channel->conn);
}
