/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a channel between two ranks. The sender sends a request; the receiver
 * creates its side, and sends a reply; the sender completes its side. Later,
 * either side sends notices of queue pairs that it has stopped. */
#include "transports/verbs/connection/exchange.h"

#include <errno.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/connection/conn.h"
#include "transports/verbs/connection/rdma_cm.h"
#include "transports/verbs/nic/events.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"

static bool uses_rdma_cm(const struct tp_device *dev)
{
	return dev->rail[0].cm;
}

static bool is_working(const struct verbs_rail *rail)
{
	return !atomic_load(&rail->nic->link_down_ms) &&
	       !atomic_load(&rail->nic->fatal) && rail->nic->gids;
}

/* Handle the changes that the NICs have reported so far. They count for the
 * next channel. */
static void refresh_nics(const struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		verbs_nic_events(dev->rail[i].nic);
		verbs_nic_refresh(dev->rail[i].nic);
	}
}

/* librdmacm connects the queue pairs next, within a deadline. */
static void await_rdma_cm(struct verbs_conn *c)
{
	c->stage = CONN_AWAITING_RDMA_CM;
	c->deadline_ms = clock_ms() + VERBS_MSG_MS;
}

/* ---- the receiver: it replies to a request ---- */

/* Returns why an authentic request cannot be served, or NULL. */
static const char *request_error(const struct tp_device *dev,
				 const struct verbs_connect_msg *msg)
{
	const struct tp_config *config = &dev->config;

	if (msg->type != VERBS_REQUEST)
		return "this is no connect request";
	if (msg->ranks != (uint32_t)config->ranks ||
	    msg->to_rank != (uint32_t)config->rank ||
	    msg->from_rank >= msg->ranks || msg->channel_class >= TP_CLASSES)
		return "no such rank";
	if (msg->slots != config->slots || msg->stride != dev->stride)
		return "its slots differ from mine";
	if (!msg->qps || msg->qps > VERBS_QPS)
		return "invalid number of queue pairs";
	for (uint32_t i = 0; i < msg->qps; i++) {
		if (msg->qp[i].rail >= VERBS_RAILS ||
		    msg->qp[i].remote_rail >= dev->rails)
			return "no such port";
		if (!msg->qp[i].gids || msg->qp[i].gids > VERBS_GIDS)
			return "invalid number of GIDs";
	}
	if (atomic_load(&dev->aborted))
		return "it has aborted";
	if (atomic_load(
		    &dev->in[msg->from_rank * TP_CLASSES + msg->channel_class]))
		return "that channel exists already";
	return NULL;
}

/* Returns the rail that the sender asked for, or the next one that works. */
static uint32_t rail_for(const struct tp_device *dev, uint32_t wanted)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		uint32_t rail = (wanted + i) % dev->rails;

		if (is_working(&dev->rail[rail]))
			return rail;
	}
	return wanted;
}

/* Write the two GIDs that the queue pair connects into the reply. */
static void reply_gids(const struct verbs_qp *qp,
		       const struct verbs_qp_address *request,
		       struct verbs_qp_address *reply)
{
	memcpy(reply->gid[0], qp->gid.gid.raw, sizeof(reply->gid[0]));
	memcpy(reply->gid[1], request->gid[qp->to_gid], sizeof(reply->gid[1]));
	reply->gids = 2;
	if (uses_rdma_cm(qp->channel->dev))
		verbs_rdma_cm_address(qp->rail, reply);
}

static dicomm_result_t make_receiver(struct tp_device *dev,
				     struct verbs_conn *c,
				     struct verbs_connect_msg *reply)
{
	const struct verbs_connect_msg *request = &c->msg;
	struct verbs_channel *channel =
		verbs_channel_new(dev, (int)request->from_rank,
				  request->channel_class, true, request->qps);
	dicomm_result_t status;

	if (!channel)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(channel->remote, sizeof(channel->remote), "%.63s",
		 request->why);
	refresh_nics(dev);
	for (uint32_t i = 0; i < request->qps; i++) {
		reply->qp[i].rail = rail_for(dev, request->qp[i].remote_rail);
		reply->qp[i].remote_rail = request->qp[i].rail;
	}
	status = verbs_channel_open(channel, reply);
	if (status == DICOMM_SUCCESS)
		status = verbs_channel_inbox(channel, reply);
	if (status == DICOMM_SUCCESS)
		status = verbs_channel_set_remote(channel, request);
	if (status == DICOMM_SUCCESS && !uses_rdma_cm(dev))
		status = verbs_channel_connect(channel, request);
	if (status != DICOMM_SUCCESS) {
		verbs_channel_close(channel);
		return status;
	}
	for (uint32_t i = 0; i < channel->qps; i++)
		reply_gids(&channel->qp[i], &request->qp[i], &reply->qp[i]);
	channel->conn = c;
	c->channel = channel;
	memcpy(channel->challenge, request->challenge, VERBS_NONCE);
	if (uses_rdma_cm(dev)) {
		atomic_store(&channel->state, CHANNEL_CONNECTING);
		await_rdma_cm(c);
		return DICOMM_SUCCESS;
	}
	atomic_store_explicit(&channel->state, CHANNEL_READY,
			      memory_order_relaxed);
	atomic_store_explicit(&dev->in[channel->id], channel,
			      memory_order_release);
	return DICOMM_SUCCESS;
}

bool verbs_serve_request(struct tp_device *dev, struct verbs_conn *c)
{
	struct verbs_connect_msg reply = {.type = VERBS_REPLY};
	const char *why;

	memcpy(reply.to, c->msg.from, sizeof(reply.to));
	memcpy(reply.from, dev->nonce, sizeof(reply.from));
	memcpy(reply.challenge, c->msg.challenge, sizeof(reply.challenge));
	reply.from_rank = (uint32_t)dev->config.rank;
	reply.to_rank = c->msg.from_rank;
	reply.ranks = (uint32_t)dev->config.ranks;
	reply.channel_class = c->msg.channel_class;
	reply.slots = dev->config.slots;
	reply.stride = dev->stride;
	why = request_error(dev, &c->msg);
	if (why) {
		reply.status = DICOMM_ERR_REMOTE;
		snprintf(reply.why, sizeof(reply.why), "%s", why);
	} else {
		reply.status = make_receiver(dev, c, &reply);
		if (reply.status)
			snprintf(reply.why, sizeof(reply.why), "%.220s",
				 log_last_error());
	}
	verbs_msg_seal(&reply, dev->config.key);
	return verbs_conn_write(c, &reply) && !reply.status;
}

/* ---- the sender: it sends a request ---- */

static int tcp_connect_begin(const char *host_port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	char host[VERBS_TEXT], *colon, *name = host;
	int fd;

	snprintf(host, sizeof(host), "%s", host_port);
	colon = strrchr(host, ':');
	if (!colon) {
		errno = EINVAL;
		return -1;
	}
	*colon = '\0';
	if (*name == '[' && colon > host && colon[-1] == ']') {
		colon[-1] = '\0';
		name++;
	}
	if (getaddrinfo(name, colon + 1, &hints, &found)) {
		errno = EINVAL;
		return -1;
	}
	fd = descriptors_high(socket(found->ai_family,
				     SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
				     0));
	if (fd >= 0) {
		tcp_tune(fd);
		if (connect(fd, found->ai_addr, found->ai_addrlen) < 0 &&
		    errno != EINPROGRESS) {
			int error = errno;

			close(fd);
			errno = error;
			fd = -1;
		}
	}
	freeaddrinfo(found);
	return fd;
}

/* Pair the rails of both sides, so that each rail is in a pair. Returns the
 * number of queue pairs. */
static uint32_t pair_rails(const struct tp_device *dev,
			   const struct verbs_address *to,
			   struct verbs_qp_address qp[VERBS_QPS])
{
	uint32_t mine[VERBS_RAILS], n = 0, pairs, qps;

	for (uint32_t i = 0; i < dev->rails; i++)
		if (is_working(&dev->rail[i]))
			mine[n++] = i;
	if (!n) /* no rail works; opening the first one reports why */
		mine[n++] = 0;
	pairs = n > to->rails ? n : to->rails;
	qps = pairs * dev->config.queue_pairs;
	if (qps > VERBS_QPS)
		qps = VERBS_QPS / pairs * pairs;
	for (uint32_t i = 0; i < qps; i++) {
		qp[i].rail = mine[i % pairs % n];
		qp[i].remote_rail = i % pairs % to->rails;
	}
	return qps;
}

/* Open the queue pairs, begin to connect by TCP, and prepare the request. The
 * caller holds verbs_lock(). */
static dicomm_result_t prepare_request(struct verbs_channel *channel,
				       const struct verbs_address *to,
				       struct verbs_connect_msg msg)
{
	struct tp_device *dev = channel->dev;
	struct verbs_conn *c;
	int fd, at;

	TRY(verbs_channel_open(channel, &msg));
	fd = tcp_connect_begin(to->listen);
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE,
			    "verbs: rank %d: connect to %s: "
			    "%m",
			    channel->rank, to->listen);
	c = verbs_conn_add(fd, CONN_CONNECTING, EPOLLOUT);
	if (!c) {
		close(fd);
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: watch a connection: %m");
	}
	snprintf(c->from, sizeof(c->from), "%s", to->listen);
	c->channel = channel;
	/* No deadline: a sender waits for it as for a message. */
	channel->conn = c;
	memcpy(msg.to, to->nonce, sizeof(msg.to));
	memcpy(msg.from, dev->nonce, sizeof(msg.from));
	randombytes_buf(channel->challenge, sizeof(channel->challenge));
	memcpy(msg.challenge, channel->challenge, sizeof(msg.challenge));
	msg.from_rank = (uint32_t)dev->config.rank;
	msg.to_rank = (uint32_t)channel->rank;
	msg.ranks = (uint32_t)dev->config.ranks;
	msg.channel_class = channel->id % TP_CLASSES;
	msg.addr = (uintptr_t)channel->words;
	for (uint32_t i = 0; i < msg.qps; i++)
		msg.qp[i].rkey = channel->qp[i].rail->words_mr->rkey;
	msg.slots = dev->config.slots;
	msg.stride = dev->stride;
	/* The peer uses this text for this rank in its log messages. */
	at = snprintf(msg.why, sizeof(msg.why), "%s ", dev->host);
	verbs_rail_names(dev, msg.why + at, sizeof(msg.why) - (size_t)at);
	verbs_msg_seal(&msg, dev->config.key);
	c->msg = msg;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_connect_begin(struct tp_device *dev,
				    const struct verbs_address *to,
				    enum tp_class c, struct verbs_channel **out)
{
	struct verbs_connect_msg msg = {.type = VERBS_REQUEST};
	struct verbs_channel *channel;
	dicomm_result_t status;
	uint32_t qps;

	verbs_lock();
	refresh_nics(dev);
	qps = pair_rails(dev, to, msg.qp);
	verbs_unlock();
	channel = verbs_channel_new(dev, (int)to->rank, c, false, qps);
	if (!channel)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(channel->remote, sizeof(channel->remote), "%s %s", to->host,
		 to->nic);
	atomic_store(&channel->state, CHANNEL_CONNECTING);
	verbs_lock();
	if (atomic_load(&dev->aborted))
		status = DICOMM_ERR_ABORTED;
	else
		status = prepare_request(channel, to, msg);
	if (status == DICOMM_SUCCESS) {
		atomic_store(&dev->out[channel->id], channel);
	} else {
		verbs_channel_close(channel);
	}
	verbs_unlock();
	if (status == DICOMM_SUCCESS)
		*out = channel;
	return status;
}

void verbs_tcp_connected(struct verbs_conn *c)
{
	char text[256];
	int error = 0;
	socklen_t len = sizeof(error);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (!error && verbs_conn_write(c, &c->msg)) {
		c->stage = CONN_AWAITING_REPLY;
		c->have = 0;
		verbs_conn_watch(c, EPOLLIN);
		return;
	}
	snprintf(text, sizeof(text),
		 "verbs: rank %d (%s): connect to %s: %.80s", c->channel->rank,
		 c->channel->remote, c->from, strerror(error ? error : errno));
	verbs_channel_failed(c->channel, DICOMM_ERR_REMOTE, text);
	verbs_conn_drop(c);
}

/* Returns what is wrong with a reply, or NULL. */
static const char *reply_error(const struct verbs_channel *channel,
			       const struct verbs_connect_msg *msg)
{
	const struct tp_config *config = &channel->dev->config;

	if (!verbs_msg_is_genuine(msg, config->key))
		return "its reply is not of this communicator";
	if (msg->type != VERBS_REPLY ||
	    memcmp(msg->challenge, channel->challenge, VERBS_NONCE) ||
	    msg->from_rank != (uint32_t)channel->rank ||
	    msg->to_rank != (uint32_t)config->rank)
		return "its reply is to another request";
	if (msg->status)
		return *msg->why ? msg->why : "it refused";
	if (msg->slots != config->slots || msg->stride != channel->dev->stride)
		return "its slots differ from mine";
	if (msg->qps != channel->qps)
		return "it has another number of queue pairs";
	for (uint32_t i = 0; i < msg->qps; i++) {
		if (msg->qp[i].rail >= VERBS_RAILS)
			return "it has no such port";
		if (msg->qp[i].gids != 2)
			return "its choice of GIDs is invalid";
	}
	return NULL;
}

/* Use the GID that the receiver has chosen. Fails if the port has lost it since
 * the request. */
static dicomm_result_t use_gid(struct verbs_qp *qp, const uint8_t *wanted)
{
	const struct verbs_nic *nic = qp->rail->nic;
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	for (uint32_t i = 0; i < nic->gids; i++) {
		if (memcmp(nic->gid[i].gid.raw, wanted, sizeof(gid)) != 0)
			continue;
		qp->gid = nic->gid[i];
		return DICOMM_SUCCESS;
	}
	memcpy(&gid, wanted, sizeof(gid));
	verbs_gid_text(&gid, text);
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u gid %s: rank %d (%s): "
		    "connect: " VERBS_GID_LEFT,
		    nic->name, nic->port, text, qp->channel->rank,
		    qp->channel->remote);
}

/* Complete this side, after the reply. */
static dicomm_result_t connect_qps(struct verbs_channel *channel,
				   const struct verbs_connect_msg *remote)
{
	for (uint32_t i = 0; i < channel->qps; i++)
		TRY(use_gid(&channel->qp[i], remote->qp[i].gid[1]));
	TRY(verbs_channel_set_remote(channel, remote));
	if (!uses_rdma_cm(channel->dev))
		return verbs_channel_connect(channel, remote);
	for (uint32_t i = 0; i < channel->qps; i++)
		TRY(verbs_rdma_cm_connect(&channel->qp[i], &remote->qp[i]));
	return DICOMM_SUCCESS;
}

void verbs_reply_received(struct verbs_conn *c)
{
	struct verbs_channel *channel = c->channel;
	const char *why = reply_error(channel, &c->msg);
	dicomm_result_t status;
	char text[400];

	c->have = 0;
	if (why) {
		snprintf(text, sizeof(text), "verbs: rank %d (%s): %.220s",
			 channel->rank, channel->remote, why);
		verbs_channel_failed(channel, DICOMM_ERR_REMOTE, text);
		verbs_conn_drop(c);
		return;
	}
	status = connect_qps(channel, &c->msg);
	if (status == DICOMM_SUCCESS && uses_rdma_cm(channel->dev)) {
		await_rdma_cm(c);
		return;
	}
	if (status != DICOMM_SUCCESS) {
		verbs_channel_failed(channel, status, log_last_error());
		verbs_conn_drop(c);
		return;
	}
	c->stage = CONN_OPEN;
	c->deadline_ms = 0;
	atomic_store_explicit(&channel->state, CHANNEL_READY,
			      memory_order_release);
}

bool verbs_send_notice(struct verbs_channel *channel, uint32_t qp,
		       uint64_t received_to, uint64_t received_mask)
{
	struct verbs_connect_msg msg = {
		.type = VERBS_NOTICE,
		.from_rank = (uint32_t)channel->dev->config.rank,
		.to_rank = (uint32_t)channel->rank,
		.notice_qp = qp,
		.received_to = received_to,
		.received_mask = received_mask,
	};

	memcpy(msg.challenge, channel->challenge, VERBS_NONCE);
	verbs_msg_seal(&msg, channel->dev->config.key);
	return channel->conn && verbs_conn_write(channel->conn, &msg);
}

void verbs_store_notice(struct verbs_channel *channel,
			const struct verbs_connect_msg *msg)
{
	struct verbs_qp *qp = &channel->qp[msg->notice_qp];

	qp->received_to = msg->received_to;
	qp->received_mask = msg->received_mask;
	atomic_store(&qp->noticed, true);
	atomic_store(&channel->dev->failover, true);
}

bool verbs_notice_received(struct verbs_conn *c)
{
	const struct verbs_connect_msg *msg = &c->msg;
	struct verbs_channel *channel = c->channel;

	c->have = 0;
	if (!channel || !verbs_msg_is_genuine(msg, channel->dev->config.key) ||
	    msg->type != VERBS_NOTICE ||
	    memcmp(msg->challenge, channel->challenge, VERBS_NONCE) ||
	    msg->from_rank != (uint32_t)channel->rank ||
	    msg->notice_qp >= channel->qps) {
		log_warn("verbs: an invalid message on the connection with %s",
			 c->from);
		return false;
	}
	verbs_store_notice(channel, msg);
	return true;
}

/* ---- the end of a connection ---- */

void verbs_conn_ended(struct verbs_conn *c)
{
	struct verbs_channel *channel = c->channel;
	char text[256];

	if (!channel)
		return;
	if (c->stage == CONN_OPEN) {
		atomic_store_explicit(&channel->peer_closed, true,
				      memory_order_release);
		return;
	}
	snprintf(text, sizeof(text),
		 "verbs: rank %d (%s) closed the connection before it replied",
		 channel->rank, channel->remote);
	verbs_channel_failed(channel, DICOMM_ERR_REMOTE, text);
}

void verbs_conn_expired(struct verbs_conn *c)
{
	char text[256];

	snprintf(text, sizeof(text), "verbs: rank %d (%s): no reply from %s",
		 c->channel->rank, c->channel->remote, c->from);
	verbs_channel_failed(c->channel, DICOMM_ERR_TIMEOUT, text);
}
