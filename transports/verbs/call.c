/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls and answers: what the two sides of a connection say to make a lane, and
 * later of strands that they have lost. With the lock of connect.c.
 */
#include "transports/verbs/call.h"

#include <errno.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/tcp.h"
#include "transports/verbs/address.h"
#include "transports/verbs/cm.h"
#include "transports/verbs/connect.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/loss.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/watch.h"

/* The first reason counts, and may be being read. */
static void lane_failed(struct verbs_lane *lane, dicomm_result_t why,
			const char *text)
{
	if (atomic_load(&lane->state) == LANE_FAILED)
		return;
	verbs_lane_end(lane, why);
	snprintf(lane->text, sizeof(lane->text), "%s", text);
	atomic_store_explicit(&lane->state, LANE_FAILED, memory_order_release);
}

static bool uses_cm(const struct tp_device *dev)
{
	return dev->rail[0].cm;
}

static bool is_of_use(const struct verbs_rail *rail)
{
	return !atomic_load(&rail->nic->lost_ms) &&
	       !atomic_load(&rail->nic->fatal) && rail->nic->gids;
}

/* What a NIC has said of changes until now counts for the next lane. */
static void renew_nics(const struct tp_device *dev)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		verbs_watch_events(dev->rail[i].nic);
		verbs_nic_renew(dev->rail[i].nic);
	}
}

/* For a connection that cm.c makes. */
static void await(struct verbs_conn *c)
{
	c->stage = CONN_JOINING;
	c->deadline_ms = clock_ms() + VERBS_CARD_MS;
}

void verbs_call_joined(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;

	if (!lane->conn || lane->conn->stage != CONN_JOINING)
		return;
	s->joined = true;
	for (uint32_t i = 0; i < lane->strands; i++)
		if (!lane->strand[i].joined)
			return;
	lane->conn->stage = CONN_OPEN;
	lane->conn->deadline_ms = 0;
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_release);
}

void verbs_call_failed(struct verbs_strand *s, const char *what,
		       const char *why)
{
	struct verbs_lane *lane = s->lane;
	char text[256];

	if (atomic_load(&lane->state) != LANE_CONNECTING)
		return;
	if (lane->conn)
		lane->conn->deadline_ms = 0;
	snprintf(text, sizeof(text), "verbs %.40s: rank %d (%s): %.40s: %.60s",
		 s->rail->nic->name, lane->rank, lane->remote, what, why);
	lane_failed(lane, DICOMM_ERR_REMOTE, text);
}

/* ---- the side that is called ---- */

/* Why a genuine card cannot be served; NULL if it can. */
static const char *objection(const struct tp_device *dev,
			     const struct verbs_card *card)
{
	const struct tp_config *config = &dev->config;

	if (card->type != VERBS_CALL)
		return "this is no call";
	if (card->ranks != (uint32_t)config->ranks ||
	    card->to_rank != (uint32_t)config->rank ||
	    card->from_rank >= card->ranks || card->lane_class >= TP_CLASSES)
		return "no such rank";
	if (card->slots != config->slots || card->stride != dev->stride)
		return "its slots are not like mine";
	if (!card->strands || card->strands > VERBS_STRANDS)
		return "no such number of queue pairs";
	for (uint32_t i = 0; i < card->strands; i++) {
		if (card->end[i].rail >= VERBS_RAILS ||
		    card->end[i].to_rail >= dev->rails)
			return "no such port";
		if (!card->end[i].gids || card->end[i].gids > VERBS_GIDS)
			return "no such number of GIDs";
	}
	if (atomic_load(&dev->aborted))
		return "it has aborted";
	if (atomic_load(
		    &dev->in[card->from_rank * TP_CLASSES + card->lane_class]))
		return "that lane exists already";
	return NULL;
}

/* The rail that the caller would have, or if it is of no use, another. */
static uint32_t rail_for(const struct tp_device *dev, uint32_t wanted)
{
	for (uint32_t i = 0; i < dev->rails; i++) {
		uint32_t rail = (wanted + i) % dev->rails;

		if (is_of_use(&dev->rail[rail]))
			return rail;
	}
	return wanted;
}

/* Those that a strand goes between. */
static void tell_gids(const struct verbs_strand *s,
		      const struct verbs_end *call, struct verbs_end *answer)
{
	memcpy(answer->gid[0], s->gid.gid.raw, sizeof(answer->gid[0]));
	memcpy(answer->gid[1], call->gid[s->to_gid], sizeof(answer->gid[1]));
	answer->gids = 2;
	if (uses_cm(s->lane->dev))
		verbs_cm_end(s->rail, answer);
}

static dicomm_result_t make_in(struct tp_device *dev, struct verbs_conn *c,
			       struct verbs_card *answer)
{
	const struct verbs_card *call = &c->card;
	struct verbs_lane *lane =
		verbs_lane_new(dev, (int)call->from_rank, call->lane_class,
			       true, call->strands);
	dicomm_result_t status;

	if (!lane)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(lane->remote, sizeof(lane->remote), "%.63s", call->why);
	renew_nics(dev);
	for (uint32_t i = 0; i < call->strands; i++) {
		answer->end[i].rail = rail_for(dev, call->end[i].to_rail);
		answer->end[i].to_rail = call->end[i].rail;
	}
	status = verbs_lane_open(lane, answer);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_inbox(lane, answer);
	if (status == DICOMM_SUCCESS)
		status = verbs_lane_meet(lane, call);
	if (status == DICOMM_SUCCESS && !uses_cm(dev))
		status = verbs_lane_connect(lane, call);
	if (status != DICOMM_SUCCESS) {
		verbs_lane_close(lane);
		return status;
	}
	for (uint32_t i = 0; i < lane->strands; i++)
		tell_gids(&lane->strand[i], &call->end[i], &answer->end[i]);
	lane->conn = c;
	c->lane = lane;
	memcpy(lane->challenge, call->challenge, VERBS_NONCE);
	if (uses_cm(dev)) {
		atomic_store(&lane->state, LANE_CONNECTING);
		await(c);
		return DICOMM_SUCCESS;
	}
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_relaxed);
	atomic_store_explicit(&dev->in[lane->id], lane, memory_order_release);
	return DICOMM_SUCCESS;
}

bool verbs_call_answer(struct tp_device *dev, struct verbs_conn *c)
{
	struct verbs_card answer = {.type = VERBS_ANSWER};
	const char *why;

	memcpy(answer.to, c->card.from, sizeof(answer.to));
	memcpy(answer.from, dev->nonce, sizeof(answer.from));
	memcpy(answer.challenge, c->card.challenge, sizeof(answer.challenge));
	answer.from_rank = (uint32_t)dev->config.rank;
	answer.to_rank = c->card.from_rank;
	answer.ranks = (uint32_t)dev->config.ranks;
	answer.lane_class = c->card.lane_class;
	answer.slots = dev->config.slots;
	answer.stride = dev->stride;
	why = objection(dev, &c->card);
	if (why) {
		answer.status = DICOMM_ERR_REMOTE;
		snprintf(answer.why, sizeof(answer.why), "%s", why);
	} else {
		answer.status = make_in(dev, c, &answer);
		if (answer.status)
			snprintf(answer.why, sizeof(answer.why), "%.220s",
				 log_last_error());
	}
	verbs_card_seal(&answer, dev->config.key);
	return verbs_conn_write(c, &answer) && !answer.status;
}

/* ---- the side that calls ---- */

static int begin_connect(const char *host_port)
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

/* Which rails a lane has strands between: each of either side is in one pair at
 * least. Returns their number. */
static uint32_t pair_rails(const struct tp_device *dev,
			   const struct verbs_address *to,
			   struct verbs_end end[VERBS_STRANDS])
{
	uint32_t mine[VERBS_RAILS], n = 0, pairs, strands;

	for (uint32_t i = 0; i < dev->rails; i++)
		if (is_of_use(&dev->rail[i]))
			mine[n++] = i;
	if (!n) /* then that is what will be said */
		mine[n++] = 0;
	pairs = n > to->rails ? n : to->rails;
	strands = pairs * dev->config.channels;
	if (strands > VERBS_STRANDS)
		strands = VERBS_STRANDS / pairs * pairs;
	for (uint32_t i = 0; i < strands; i++) {
		end[i].rail = mine[i % pairs % n];
		end[i].to_rail = i % pairs % to->rails;
	}
	return strands;
}

/* With the lock. */
static dicomm_result_t call(struct verbs_lane *lane,
			    const struct verbs_address *to,
			    struct verbs_card card)
{
	struct tp_device *dev = lane->dev;
	struct verbs_conn *c;
	int fd, at;

	TRY(verbs_lane_open(lane, &card));
	fd = begin_connect(to->listen);
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE,
			    "verbs: rank %d: connect to %s: "
			    "%m",
			    lane->rank, to->listen);
	c = verbs_conn_add(fd, CONN_CALLING, EPOLLOUT);
	if (!c) {
		close(fd);
		return FAIL(DICOMM_ERR_SYSTEM, "verbs: watch a connection: %m");
	}
	snprintf(c->from, sizeof(c->from), "%s", to->listen);
	c->lane = lane;
	c->deadline_ms = clock_ms() +
			 (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) * 1000;
	lane->conn = c;
	memcpy(card.to, to->nonce, sizeof(card.to));
	memcpy(card.from, dev->nonce, sizeof(card.from));
	randombytes_buf(lane->challenge, sizeof(lane->challenge));
	memcpy(card.challenge, lane->challenge, sizeof(card.challenge));
	card.from_rank = (uint32_t)dev->config.rank;
	card.to_rank = (uint32_t)lane->rank;
	card.ranks = (uint32_t)dev->config.ranks;
	card.lane_class = lane->id % TP_CLASSES;
	card.addr = (uintptr_t)lane->words;
	for (uint32_t i = 0; i < card.strands; i++)
		card.end[i].rkey = lane->strand[i].rail->words_mr->rkey;
	card.slots = dev->config.slots;
	card.stride = dev->stride;
	/* Who calls, for messages over there. */
	at = snprintf(card.why, sizeof(card.why), "%s ", dev->host);
	verbs_rail_names(dev, card.why + at, sizeof(card.why) - (size_t)at);
	verbs_card_seal(&card, dev->config.key);
	c->card = card;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_call_begin(struct tp_device *dev,
				 const struct verbs_address *to,
				 enum tp_class c, struct verbs_lane **out)
{
	struct verbs_card card = {.type = VERBS_CALL};
	struct verbs_lane *lane;
	dicomm_result_t status;
	uint32_t strands;

	verbs_lock();
	renew_nics(dev);
	strands = pair_rails(dev, to, card.end);
	verbs_unlock();
	lane = verbs_lane_new(dev, (int)to->rank, c, false, strands);
	if (!lane)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	snprintf(lane->remote, sizeof(lane->remote), "%s %s", to->host,
		 to->nic);
	verbs_credits_begin(lane);
	atomic_store(&lane->state, LANE_CONNECTING);
	verbs_lock();
	if (atomic_load(&dev->aborted))
		status = DICOMM_ERR_ABORTED;
	else
		status = call(lane, to, card);
	if (status == DICOMM_SUCCESS) {
		atomic_store(&dev->out[lane->id], lane);
	} else {
		verbs_credits_end(lane);
		verbs_lane_close(lane);
	}
	verbs_unlock();
	if (status == DICOMM_SUCCESS)
		*out = lane;
	return status;
}

void verbs_call_connected(struct verbs_conn *c)
{
	char text[256];
	int error = 0;
	socklen_t len = sizeof(error);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (!error && verbs_conn_write(c, &c->card)) {
		c->stage = CONN_ASKED;
		c->have = 0;
		verbs_conn_watch(c, EPOLLIN);
		return;
	}
	snprintf(text, sizeof(text),
		 "verbs: rank %d (%s): connect to %s: %.80s", c->lane->rank,
		 c->lane->remote, c->from, strerror(error ? error : errno));
	lane_failed(c->lane, DICOMM_ERR_REMOTE, text);
	verbs_conn_drop(c);
}

/* What is wrong with an answer; NULL: nothing. */
static const char *doubt(const struct verbs_lane *lane,
			 const struct verbs_card *card)
{
	const struct tp_config *config = &lane->dev->config;

	if (!verbs_card_is_genuine(card, config->key))
		return "its answer is not of this communicator";
	if (card->type != VERBS_ANSWER ||
	    memcmp(card->challenge, lane->challenge, VERBS_NONCE) ||
	    card->from_rank != (uint32_t)lane->rank ||
	    card->to_rank != (uint32_t)config->rank)
		return "its answer is to somebody else";
	if (card->status)
		return *card->why ? card->why : "it refused";
	if (card->slots != config->slots || card->stride != lane->dev->stride)
		return "its slots are not like mine";
	if (card->strands != lane->strands)
		return "it has another number of queue pairs";
	for (uint32_t i = 0; i < card->strands; i++) {
		if (card->end[i].rail >= VERBS_RAILS)
			return "it has no such port";
		if (card->end[i].gids != 2)
			return "its choice of GIDs makes no sense";
	}
	return NULL;
}

/* One of those that the call had told; the list may be another by now. */
static dicomm_result_t take_gid(struct verbs_strand *s, const uint8_t *wanted)
{
	const struct verbs_nic *nic = s->rail->nic;
	char text[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	for (uint32_t i = 0; i < nic->gids; i++) {
		if (memcmp(nic->gid[i].gid.raw, wanted, sizeof(gid)) != 0)
			continue;
		s->gid = nic->gid[i];
		return DICOMM_SUCCESS;
	}
	memcpy(&gid, wanted, sizeof(gid));
	verbs_gid_text(&gid, text);
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s port %u gid %s: rank %d (%s): "
		    "connect: " VERBS_GID_LEFT,
		    nic->name, nic->port, text, s->lane->rank, s->lane->remote);
}

/* Both cards are there. */
static dicomm_result_t join(struct verbs_lane *lane,
			    const struct verbs_card *remote)
{
	for (uint32_t i = 0; i < lane->strands; i++)
		TRY(take_gid(&lane->strand[i], remote->end[i].gid[1]));
	TRY(verbs_lane_meet(lane, remote));
	if (!uses_cm(lane->dev))
		return verbs_lane_connect(lane, remote);
	for (uint32_t i = 0; i < lane->strands; i++)
		TRY(verbs_cm_call(&lane->strand[i], &remote->end[i]));
	return DICOMM_SUCCESS;
}

void verbs_call_answered(struct verbs_conn *c)
{
	struct verbs_lane *lane = c->lane;
	const char *why = doubt(lane, &c->card);
	dicomm_result_t status;
	char text[400];

	c->have = 0;
	if (why) {
		snprintf(text, sizeof(text), "verbs: rank %d (%s): %.220s",
			 lane->rank, lane->remote, why);
		lane_failed(lane, DICOMM_ERR_REMOTE, text);
		verbs_conn_drop(c);
		return;
	}
	status = join(lane, &c->card);
	if (status == DICOMM_SUCCESS && uses_cm(lane->dev)) {
		await(c);
		return;
	}
	if (status != DICOMM_SUCCESS) {
		lane_failed(lane, status, log_last_error());
		verbs_conn_drop(c);
		return;
	}
	c->stage = CONN_OPEN;
	c->deadline_ms = 0;
	atomic_store_explicit(&lane->state, LANE_READY, memory_order_release);
}

bool verbs_call_tell(struct verbs_lane *lane, uint32_t strand, uint64_t come_to,
		     uint64_t come_mask)
{
	struct verbs_card card = {
		.type = VERBS_NOTICE,
		.from_rank = (uint32_t)lane->dev->config.rank,
		.to_rank = (uint32_t)lane->rank,
		.strand = strand,
		.come_to = come_to,
		.come_mask = come_mask,
	};

	memcpy(card.challenge, lane->challenge, VERBS_NONCE);
	verbs_card_seal(&card, lane->dev->config.key);
	return lane->conn && verbs_conn_write(lane->conn, &card);
}

bool verbs_call_notice(struct verbs_conn *c)
{
	const struct verbs_card *card = &c->card;
	struct verbs_lane *lane = c->lane;

	c->have = 0;
	if (!lane || !verbs_card_is_genuine(card, lane->dev->config.key) ||
	    card->type != VERBS_NOTICE ||
	    memcmp(card->challenge, lane->challenge, VERBS_NONCE) ||
	    card->from_rank != (uint32_t)lane->rank ||
	    card->strand >= lane->strands) {
		log_warn("verbs: noise on the connection with %s", c->from);
		return false;
	}
	verbs_loss_noticed(lane, card);
	return true;
}

/* ---- the end ---- */

void verbs_call_ended(struct verbs_conn *c)
{
	struct verbs_lane *lane = c->lane;
	char text[256];

	if (!lane)
		return;
	if (c->stage == CONN_OPEN) {
		atomic_store_explicit(&lane->left, true, memory_order_release);
		return;
	}
	snprintf(text, sizeof(text),
		 "verbs: rank %d (%s) hung up during the call", lane->rank,
		 lane->remote);
	lane_failed(lane, DICOMM_ERR_REMOTE, text);
}

void verbs_call_expired(struct verbs_conn *c)
{
	char text[256];

	snprintf(text, sizeof(text), "verbs: rank %d (%s): no answer from %s",
		 c->lane->rank, c->lane->remote, c->from);
	lane_failed(c->lane, DICOMM_ERR_TIMEOUT, text);
}
