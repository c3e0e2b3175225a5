/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs that are lost: why, in words; and how their lane goes on.
 *
 * What went over a lost strand may have landed, or not, or may land late. So
 * both sides stop it, each on its own: after that nothing of it lands here.
 * Each tells the other (over the connection that the lane was made by) that it
 * has, and what has come. Only then the sender sends again what has not, and
 * the receiver tells its credits, over another strand. Reads are another
 * matter: who has stopped them need not ask anybody before it reads again.
 */
#include "transports/verbs/loss.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "transports/verbs/address.h"
#include "transports/verbs/call.h"
#include "transports/verbs/connect.h"
#include "transports/verbs/credits.h"
#include "transports/verbs/lane.h"
#include "transports/verbs/mirror.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/poll.h"
#include "transports/verbs/rail.h"
#include "transports/verbs/traffic.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/watch.h"

/* For a NIC to say that a queue pair has brought its last message. */
#define LAST_MS 10

static const char *hint(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer: is the other rank alive, its link up, and "
		       "RoCE's UDP port 4791 open between them? "
		       "DICOMM_IB_TIMEOUT and DICOMM_IB_RETRY_CNT say how long "
		       "to try";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the other side had no receive posted, which is a bug";
	case IBV_WC_REM_ACCESS_ERR:
		return "the other side has withdrawn that memory";
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return "the other NIC could not do it";
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
		return "memory of this rank is gone, or a bug";
	case IBV_WC_WR_FLUSH_ERR:
		return "the NIC stopped the queue pair without a reason: has "
		       "the port of this rank just lost its link?";
	default:
		return "the NIC failed";
	}
}

static bool is_remote(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return true;
	default:
		return false;
	}
}

static bool has_link(const struct verbs_nic *nic)
{
	struct ibv_port_attr port;

	return !ibv_query_port(nic->context, nic->port, &port) &&
	       port.state == IBV_PORT_ACTIVE;
}

/* A request that did not fail by itself: what has the port to say? Some NICs
 * report no more than that when they cannot send, and learn of their link a
 * second later. */
static const char *flush_hint(const struct verbs_nic *nic, dicomm_result_t *why)
{
	if (has_link(nic))
		return hint(IBV_WC_WR_FLUSH_ERR);
	*why = DICOMM_ERR_SYSTEM;
	return "the port of this rank has no link";
}

static void set_text(struct verbs_strand *s, const char *what,
		     const char *hint_text)
{
	const struct verbs_nic *nic = s->rail->nic;
	struct verbs_lane *lane = s->lane;
	char gid[INET6_ADDRSTRLEN];

	verbs_gid_text(&s->gid.gid, gid);
	if (!verbs_nic_has_gid(nic, &s->gid) && has_link(nic))
		hint_text = VERBS_GID_LEFT;
	snprintf(lane->text, sizeof(lane->text),
		 "verbs %s port %u gid %s: rank %d (%s): queue pair %#x: %s: "
		 "%s",
		 nic->name, nic->port, gid, lane->rank, lane->remote, s->qpn,
		 what, hint_text);
}

/* May another strand do what this one could not? */
static bool is_of_the_way(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_GENERAL_ERR:
		return true;
	default:
		return false;
	}
}

struct verbs_strand *verbs_strand_good(struct verbs_lane *lane)
{
	for (uint32_t i = 0; i < lane->strands; i++)
		if (lane->strand[i].state == STRAND_GOOD)
			return &lane->strand[i];
	return NULL;
}

/* Go on without it, if there is another; the words are set. */
static bool lose(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;
	const struct verbs_strand *other;

	/* TCP has given it up, so has the other side. */
	if (s->rail->nic->fabric == VERBS_IWARP)
		return false;
	s->state = STRAND_LOST;
	other = verbs_strand_good(lane);
	if (!other) {
		s->state = STRAND_GOOD;
		return false;
	}
	log_warn("%s; goes on over %s port %u", lane->text,
		 other->rail->nic->name, other->rail->nic->port);
	atomic_store(&lane->dev->repair, true);
	verbs_poll_all(lane->dev);
	return true;
}

void verbs_strand_give_up(struct verbs_strand *s, dicomm_result_t why,
			  const char *what, const char *hint_text)
{
	struct verbs_lane *lane = s->lane;

	if (lane->why || s->state != STRAND_GOOD)
		return;
	set_text(s, what, hint_text);
	if (lose(s))
		return;
	verbs_lane_end(lane, why);
	log_error("%s", lane->text);
	log_set_last_error(lane->text);
}

void verbs_strand_broken(struct verbs_strand *s, const struct ibv_wc *wc,
			 const char *operation, uint64_t bytes)
{
	struct verbs_lane *lane = s->lane;
	/* Over iWARP, the end of a connection is seen by the NIC first, or by
	 * siw as a send that fails. It may be the NIC itself that ended it. */
	bool ended = s->rail->nic->fabric == VERBS_IWARP &&
		     (wc->status == IBV_WC_WR_FLUSH_ERR ||
		      wc->status == IBV_WC_LOC_QP_OP_ERR);
	bool gone =
		atomic_load(&lane->left) || (ended && has_link(s->rail->nic));
	dicomm_result_t why = gone || is_remote(wc->status) ? DICOMM_ERR_REMOTE
							    : DICOMM_ERR_SYSTEM;
	const char *hint_text = hint(wc->status);
	char what[160];

	if (lane->why || s->state != STRAND_GOOD)
		return;
	/* Who has gone, the control plane tells better. */
	if (gone) {
		verbs_lane_end(lane, why);
		snprintf(lane->text, sizeof(lane->text),
			 "verbs: rank %d (%s) has closed its side", lane->rank,
			 lane->remote);
		log_debug("%s", lane->text);
		log_set_last_error(lane->text);
		return;
	}
	if (ended || wc->status == IBV_WC_WR_FLUSH_ERR)
		hint_text = flush_hint(s->rail->nic, &why);
	snprintf(what, sizeof(what),
		 "%s of %" PRIu64 " bytes: %s (vendor error %#x)", operation,
		 bytes, ibv_wc_status_str(wc->status), wc->vendor_err);
	set_text(s, what, hint_text);
	if (is_of_the_way(wc->status) && lose(s))
		return;
	verbs_lane_end(lane, why);
	log_error("%s", lane->text);
	log_set_last_error(lane->text);
}

/* ---- going on; with the lock, by the thread that uses the device ---- */

static void complete_all(struct tp_device *dev)
{
	int most = 0;

	for (uint32_t i = 0; i < dev->rails; i++)
		most += dev->rail[i].cqe;
	while (verbs_complete(dev) && most-- > 0)
		;
}

/* A NIC that is dead brings nothing, either. */
static bool set_state(struct verbs_strand *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	struct verbs_lane *lane = s->lane;
	int error = ibv_modify_qp(s->qp, &attr, IBV_QP_STATE);

	complete_all(lane->dev);
	if (!error || atomic_load(&s->rail->nic->fatal))
		return true;
	set_text(s, "it cannot be stopped", strerror(error));
	verbs_lane_end(lane, DICOMM_ERR_SYSTEM);
	log_error("%s", lane->text);
	return false;
}

/* Some NICs finish what they are at after that. */
static void begin_stop(struct verbs_strand *s)
{
	if (!set_state(s, IBV_QPS_ERR))
		return;
	s->state = STRAND_ENDING;
	s->ending_ms = clock_ms();
	s->lane->unfenced++;
}

/* Messages may be on their way from the NIC to the completion queue until it
 * says that there was the last; drivers throw out what is there of a queue pair
 * that is reset, and the receives are lost. Some NICs never say it. Nobody
 * waits here for that: the lock is that of all lanes of the process. */
static bool has_ended(struct verbs_strand *s)
{
	struct verbs_nic *nic = s->rail->nic;
	bool late = clock_ms() >= s->ending_ms + LAST_MS;

	if (!s->lane->in)
		return true;
	verbs_watch_events(nic);
	complete_all(s->lane->dev);
	return s->last || late || atomic_load(&nic->fatal);
}

/* What the strand has brought until now counts; nothing that comes later. */
static void stop(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;
	struct tp_device *dev = lane->dev;

	if (!set_state(s, IBV_QPS_RESET))
		return;
	s->state = STRAND_STOPPED;
	for (uint32_t i = 0; i < VERBS_READS; i++) {
		if (lane->reads[i].by != s)
			continue;
		lane->reads[i].by = NULL;
		atomic_fetch_sub(&dev->reads, 1);
	}
	/* One receive may be lost with the message that had begun to come. */
	if (lane->in && s->rail->srq)
		verbs_rail_receives(s->rail, NULL, 1);
}

static bool tell(const struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;
	uint64_t mask = 0;

	for (uint32_t i = 0; lane->in && i < lane->dev->config.slots; i++)
		if (verbs_has_come(lane, lane->freed + 1 + i))
			mask |= UINT64_C(1) << i;
	return verbs_call_tell(lane, (uint32_t)(s - lane->strand), lane->freed,
			       mask);
}

void verbs_loss_noticed(struct verbs_lane *lane, const struct verbs_card *card)
{
	struct verbs_strand *s = &lane->strand[card->strand];

	s->come_to = card->come_to;
	s->come_mask = card->come_mask;
	atomic_store(&s->noticed, true);
	atomic_store(&lane->dev->repair, true);
}

static bool has_come_there(const struct verbs_strand *s, uint64_t seq)
{
	uint64_t after = seq - s->come_to - 1;

	return seq <= s->come_to || (after < 64 && s->come_mask >> after & 1);
}

/* Both sides have stopped it: what of it is to be sent again? */
static void collect(struct verbs_strand *s)
{
	struct verbs_lane *lane = s->lane;
	struct verbs_pool *pool = &lane->dev->pool;

	lane->unfenced--;
	s->fenced = true;
	if (lane->in) {
		lane->urgent = true;
		verbs_untold_add(lane);
		return;
	}
	for (uint32_t i = 0; i < lane->dev->config.slots; i++) {
		struct verbs_kept *kept = &lane->kept[i];

		if (kept->by != s || (int32_t)(kept->count - s->done) < 0 ||
		    has_come_there(s, kept->seq))
			continue;
		lane->again |= UINT64_C(1) << i;
		if (kept->what)
			pool->user[kept->what - 1] = NULL;
	}
	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->user[i] == s)
			verbs_pool_give(pool, i);
	log_info("verbs %s: rank %d (%s): %d messages are sent again",
		 s->rail->nic->name, lane->rank, lane->remote,
		 __builtin_popcountll(lane->again));
}

/* AGAIN: there was no room for all. */
static dicomm_result_t post_again(struct verbs_lane *lane)
{
	while (lane->again) {
		int slot = __builtin_ctzll(lane->again);

		TRY(verbs_send_again(lane, &lane->kept[slot]));
		lane->again &= lane->again - 1;
	}
	for (uint32_t i = 0; lane->in && i < VERBS_READS; i++) {
		struct verbs_read *read = &lane->reads[i];

		if (read->pending && !read->by)
			TRY(verbs_read_again(lane, read));
	}
	return DICOMM_SUCCESS;
}

static void look_at_strand(struct verbs_strand *s)
{
	bool noticed = atomic_load(&s->noticed);

	if (noticed && s->state == STRAND_GOOD)
		verbs_strand_give_up(s, DICOMM_ERR_REMOTE,
				     "the other rank has lost it",
				     "has its NIC failed, or its link?");
	if (s->state == STRAND_LOST) {
		begin_stop(s);
	} else if (s->state == STRAND_ENDING && has_ended(s)) {
		stop(s);
		if (s->state == STRAND_STOPPED && !tell(s))
			log_debug("verbs: rank %d has left", s->lane->rank);
	}
	if (noticed && s->state == STRAND_STOPPED && !s->fenced)
		collect(s);
}

/* Is there more to be done at the next turn? */
static bool repair(struct verbs_lane *lane)
{
	dicomm_result_t status;
	bool more = false;

	if (!lane || atomic_load(&lane->state) != LANE_READY || lane->why)
		return false;
	for (uint32_t i = 0; i < lane->strands && !lane->why; i++)
		look_at_strand(&lane->strand[i]);
	for (uint32_t i = 0; i < lane->strands; i++)
		more |= lane->strand[i].state == STRAND_LOST ||
			lane->strand[i].state == STRAND_ENDING;
	/* What is not stopped may still land where a read would go again. */
	if (lane->why || more)
		return !lane->why;
	status = post_again(lane);
	if (status == DICOMM_SUCCESS || status == DICOMM_AGAIN)
		return status == DICOMM_AGAIN;
	verbs_lane_end(lane, status);
	snprintf(lane->text, sizeof(lane->text), "%s", log_last_error());
	return false;
}

void verbs_loss_repair(struct tp_device *dev)
{
	bool more = false;

	verbs_lock();
	atomic_store(&dev->repair, false);
	for (uint32_t i = 0; i < dev->lanes && !atomic_load(&dev->aborted);
	     i++) {
		more |= repair(atomic_load(&dev->out[i]));
		more |= repair(atomic_load(&dev->in[i]));
	}
	for (uint32_t i = 0; i < dev->rails && !atomic_load(&dev->aborted); i++)
		more |= verbs_mirror_repair(dev, &dev->rail[i]);
	if (more)
		atomic_store(&dev->repair, true);
	verbs_unlock();
}

bool verbs_loss_pending(const struct verbs_lane *lane)
{
	return lane->unfenced || lane->again || atomic_load(&lane->dev->repair);
}
