/* SPDX-License-Identifier: BSD-3-Clause */
/* A rail: the queues of a rank on one port. */
#include "transports/verbs/channel/rail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"
#include "transports/verbs/nic/registration.h"

/* Entries of the completion queue when it is created: usually, and at most. */
#define CQE_FIRST 256
#define CQE_FIRST_MAX (1 << 20)
/* Events are acknowledged many at a time, since each acknowledgement takes a
 * lock. */
#define EVENTS_PER_ACK 64

void verbs_rail_ack_events(struct verbs_rail *rail)
{
	if (rail->cq && rail->unacknowledged)
		ibv_ack_cq_events(rail->cq, rail->unacknowledged);
	rail->unacknowledged = 0;
}

void verbs_rail_take_event(struct verbs_rail *rail)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(rail->comp_channel, &cq, &context))
		return;
	if (++rail->unacknowledged == EVENTS_PER_ACK)
		verbs_rail_ack_events(rail);
}

/* For such events; opened before the queue, and closed after it */
static dicomm_result_t open_comp_channel(struct verbs_rail *rail)
{
	rail->comp_channel = ibv_create_comp_channel(rail->nic->context);
	if (rail->comp_channel)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM, "verbs %s: completion channel: %m",
		    rail->nic->name);
}

dicomm_result_t verbs_rail_reserve(struct verbs_rail *rail, uint32_t n)
{
	const struct verbs_nic *nic = rail->nic;
	uint32_t wanted = rail->cqe_reserved + n;
	int cqe = rail->cqe;
	int error = 0;

	while ((uint32_t)cqe < wanted && nic->cq_grows)
		cqe *= 2;
	if (cqe > nic->attr.max_cqe)
		cqe = nic->attr.max_cqe;
	if ((uint32_t)cqe < wanted)
		return FAIL(DICOMM_ERR_NO_PATH,
			    "verbs %s: its completion queue holds %d entries "
			    "at most, %u are needed for one more peer",
			    nic->name, cqe, wanted);
	/* The driver locks polls out while it resizes. */
	if (cqe > rail->cqe)
		error = ibv_resize_cq(rail->cq, cqe);
	if (error) {
		errno = error;
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: completion queue of %d entries: %m%s",
			    nic->name, cqe, verbs_memory_hint());
	}
	rail->cqe = cqe;
	rail->cqe_reserved = wanted;
	return DICOMM_SUCCESS;
}

static int post(struct verbs_rail *rail, struct ibv_qp *qp,
		struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;

	return rail->srq ? ibv_post_srq_recv(rail->srq, wr, &bad)
			 : ibv_post_recv(qp, wr, &bad);
}

dicomm_result_t verbs_rail_receives(struct verbs_rail *rail, struct ibv_qp *qp,
				    uint32_t n)
{
	struct ibv_recv_wr wr = {.next = NULL};
	struct ibv_sge sge = {.length = sizeof(uint32_t)};

	for (uint32_t i = 0; i < n; i++) {
		/* If the queue is full, some receives are missing. Senders then
		 * retry when it is empty, which is slow but not wrong. */
		if (rail->srq && !rail->imm_words &&
		    rail->shared == rail->shared_max)
			return DICOMM_SUCCESS;
		if (rail->imm_words &&
		    rail->imm_words_count == rail->imm_words_max)
			return FAIL(DICOMM_ERR_INTERNAL,
				    "verbs %s: more than %u receives",
				    rail->nic->name, rail->imm_words_max);
		if (rail->imm_words) {
			wr.wr_id = rail->imm_words_count++;
			sge.addr = (uintptr_t)&rail->imm_words[wr.wr_id];
			sge.lkey = rail->imm_words_mr->lkey;
			wr.sg_list = &sge;
			wr.num_sge = 1;
		}
		errno = post(rail, qp, &wr);
		if (errno)
			return FAIL(DICOMM_ERR_SYSTEM,
				    "verbs %s: post a receive: %m",
				    rail->nic->name);
		rail->shared += rail->srq != NULL;
	}
	return DICOMM_SUCCESS;
}

uint32_t verbs_rail_take_imm(struct verbs_rail *rail, uint64_t id)
{
	uint32_t next = VERBS_RECV_BATCH - rail->batch_room;
	struct ibv_recv_wr *wr = &rail->batch[next];
	struct ibv_sge *sge = &rail->batch_sge[next];

	wr->wr_id = id;
	wr->sg_list = sge;
	wr->num_sge = 1;
	sge->addr = (uintptr_t)&rail->imm_words[id];
	sge->length = sizeof(*rail->imm_words);
	sge->lkey = rail->imm_words_mr->lkey;
	return rail->imm_words[id];
}

/* Returns how many receives are posted together. Without a shared receive
 * queue, each is posted again at once, to the queue pair that used it. */
static uint32_t batch_of(const struct verbs_rail *rail)
{
	return rail->srq ? VERBS_RECV_BATCH : 1;
}

void verbs_rail_post_batch(struct verbs_rail *rail, struct ibv_qp *qp)
{
	uint32_t n = batch_of(rail);

	rail->batch_room = n;
	errno = post(rail, qp, &rail->batch[VERBS_RECV_BATCH - n]);
	if (errno)
		log_error("verbs %s: post receives: %m", rail->nic->name);
}

/* Returns the number of entries to create the completion queue with. If it
 * cannot be resized, that is enough for all channels. */
static int first_cqe(const struct tp_device *dev, const struct verbs_nic *nic)
{
	uint64_t n = CQE_FIRST;

	if (!nic->cq_grows)
		n += (uint64_t)dev->channels * dev->config.queue_pairs *
		     (VERBS_READS + 16 + 5 * dev->config.slots);
	if (n > CQE_FIRST_MAX)
		n = CQE_FIRST_MAX;
	if (n > (uint64_t)nic->attr.max_cqe)
		n = (uint64_t)nic->attr.max_cqe;
	return (int)n;
}

static dicomm_result_t open_imm_words(struct verbs_rail *rail,
				      uint64_t receives)
{
	rail->imm_words_max = (uint32_t)receives;
	rail->imm_words = calloc(receives, sizeof(*rail->imm_words));
	if (!rail->imm_words)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	rail->imm_words_mr = ibv_reg_mr(rail->nic->pd, rail->imm_words,
					receives * sizeof(*rail->imm_words),
					IBV_ACCESS_LOCAL_WRITE);
	if (!rail->imm_words_mr)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: register receives: %m%s",
			    rail->nic->name, verbs_memory_hint());
	return DICOMM_SUCCESS;
}

/* Returns the most receives that all channels need. With a shared queue, a
 * queue pair that fails may lose one (failover.c). Without one, each queue pair
 * needs receives for all messages of its channel. */
static uint64_t most_receives(const struct tp_device *dev,
			      const struct verbs_nic *nic)
{
	uint64_t channels = dev->channels, slots = dev->config.slots, n;

	if (nic->attr.max_srq < 1)
		return channels * slots * VERBS_QPS;
	n = channels * (slots + VERBS_QPS) + VERBS_RECV_BATCH;
	return n < (uint64_t)nic->attr.max_srq_wr
		       ? n
		       : (uint64_t)nic->attr.max_srq_wr;
}

/* Create a shared receive queue. Some NICs have none (irdma, except
 * the latest). */
static dicomm_result_t open_shared(struct verbs_rail *rail, uint64_t receives)
{
	struct verbs_nic *nic = rail->nic;
	struct ibv_srq_init_attr attr = {
		.attr = {.max_wr = (uint32_t)receives, .max_sge = 1}};

	if (nic->attr.max_srq < 1)
		return DICOMM_SUCCESS;
	rail->shared_max = attr.attr.max_wr;
	rail->srq = ibv_create_srq(nic->pd, &attr);
	if (rail->srq)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM,
		    "verbs %s: receive queue of %u requests: %m%s", nic->name,
		    attr.attr.max_wr, verbs_memory_hint());
}

static dicomm_result_t open_queues(struct tp_device *dev,
				   struct verbs_rail *rail)
{
	struct verbs_nic *nic = rail->nic;
	uint64_t receives = most_receives(dev, nic);
	int vectors = nic->context->num_comp_vectors;

	rail->cqe = first_cqe(dev, nic);
	TRY(open_comp_channel(rail));
	/* Ranks of one machine use the NIC's interrupt vectors in turn. There
	 * may be none. */
	rail->cq =
		ibv_create_cq(nic->context, rail->cqe, NULL, rail->comp_channel,
			      vectors > 0 ? dev->config.rank % vectors : 0);
	if (!rail->cq)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: completion queue of %d entries: %m%s",
			    nic->name, rail->cqe, verbs_memory_hint());
	TRY(open_shared(rail, receives));
	if (nic->fabric == VERBS_IWARP)
		TRY(open_imm_words(rail, receives));
	for (int i = 0; i < VERBS_RECV_BATCH; i++)
		rail->batch[i].next =
			i + 1 < VERBS_RECV_BATCH ? &rail->batch[i + 1] : NULL;
	/* Receives are posted again when a batch of them is complete. */
	rail->batch_room = batch_of(rail);
	return rail->srq ? verbs_rail_receives(rail, NULL, VERBS_RECV_BATCH)
			 : DICOMM_SUCCESS;
}

dicomm_result_t verbs_rail_open(struct tp_device *dev, struct verbs_rail *rail)
{
	struct verbs_nic *nic = rail->nic;
	size_t bytes = (dev->channels + 1) * sizeof(*dev->words);

	TRY(open_queues(dev, rail));
	rail->words_mr = ibv_reg_mr(nic->pd, (void *)dev->words, bytes,
				    verbs_own_access(nic));
	if (!rail->words_mr)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "verbs %s: register %zu bytes for credits: %m%s",
			    nic->name, bytes, verbs_memory_hint());
	return DICOMM_SUCCESS;
}

void verbs_rail_close(struct verbs_rail *rail)
{
	if (rail->words_mr)
		ibv_dereg_mr(rail->words_mr);
	if (rail->srq)
		ibv_destroy_srq(rail->srq);
	if (rail->imm_words_mr)
		ibv_dereg_mr(rail->imm_words_mr);
	verbs_rail_ack_events(rail);
	if (rail->cq)
		ibv_destroy_cq(rail->cq);
	if (rail->comp_channel)
		ibv_destroy_comp_channel(rail->comp_channel);
	free(rail->imm_words);
	verbs_nic_put(rail->nic);
}

bool verbs_rail_is_removed(const struct tp_device *dev,
			   const struct verbs_rail *rail)
{
	bool others = false;

	if (!atomic_load(&rail->nic->removed))
		return false;
	for (uint32_t i = 0; i < dev->rails; i++)
		others |= !atomic_load(&dev->rail[i].nic->removed);
	return others;
}

void verbs_rail_names(const struct tp_device *dev, char *text, size_t len)
{
	size_t at = 0;

	for (uint32_t i = 0; i < dev->rails && at < len; i++)
		at += (size_t)snprintf(text + at, len - at, "%s%.18s:%u",
				       i ? "," : "", dev->rail[i].nic->name,
				       dev->rail[i].nic->port);
}

/* This is the last credit word, which nobody reads. */
struct ibv_sge verbs_rail_scratch(const struct tp_device *dev,
				  const struct verbs_rail *rail)
{
	return (struct ibv_sge){.addr = (uintptr_t)&dev->words[dev->channels],
				.length = 1,
				.lkey = rail->words_mr->lkey};
}
