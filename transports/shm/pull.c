/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/shm/pull.h"

#include <stdatomic.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/shm/segment.h"

static uint64_t slot_of(const struct shm_ring *ring, uint64_t seq)
{
	return seq & (ring->seg->head->slots - 1);
}

static uint8_t *data_of(const struct shm_ring *ring, uint64_t slot)
{
	return ring->data + slot * ring->seg->head->slot_bytes;
}

static uint64_t piece_of(const struct shm_ring *ring, uint64_t left)
{
	uint64_t most = ring->seg->head->slot_bytes;

	return left < most ? left : most;
}

static void ask(struct shm_ring *ring, struct shm_pull *pull)
{
	struct shm_question *q = &ring->questions[slot_of(ring, pull->seq)];
	uint64_t n =
		atomic_load_explicit(&ring->tail->asked, memory_order_relaxed) +
		1;

	pull->number = n;
	q->seq = pull->seq;
	q->from = pull->from;
	q->len = piece_of(ring, pull->left);
	atomic_store_explicit(&q->number, n, memory_order_release);
	atomic_store_explicit(&ring->tail->asked, n, memory_order_release);
}

dicomm_result_t shm_pull_begin(struct shm_ring *ring, struct shm_pull pulls[],
			       uint64_t consumed, uint64_t seq, void *dst,
			       uint64_t from, uint64_t len)
{
	struct shm_pull *pull = &pulls[slot_of(ring, seq)];

	if (seq > consumed + ring->seg->head->slots)
		return DICOMM_AGAIN;
	*pull = (struct shm_pull){
		.dst = dst, .seq = seq, .from = from, .left = len};
	ask(ring, pull);
	return DICOMM_IN_PROGRESS;
}

dicomm_result_t shm_pull_poll(struct shm_ring *ring, struct shm_pull pulls[],
			      uint64_t seq)
{
	uint64_t slot = slot_of(ring, seq), n;
	struct shm_pull *pull = &pulls[slot];

	if (!pull->dst || pull->seq != seq)
		return DICOMM_SUCCESS;
	if (atomic_load_explicit(&ring->answers[slot], memory_order_acquire) !=
	    pull->number)
		return DICOMM_IN_PROGRESS;
	n = piece_of(ring, pull->left);
	memcpy(pull->dst, data_of(ring, slot), n);
	pull->dst += n;
	pull->from += n;
	pull->left -= n;
	if (pull->left) {
		ask(ring, pull);
		return DICOMM_IN_PROGRESS;
	}
	pull->dst = NULL;
	return DICOMM_SUCCESS;
}

/* Until the message is released, what it refers to is there to be read. */
static void answer(struct shm_ring *ring, uint64_t slot, uint64_t released)
{
	const struct shm_question *q = &ring->questions[slot];
	uint64_t number =
		atomic_load_explicit(&q->number, memory_order_acquire);
	uint64_t len = q->len;

	if (number == atomic_load_explicit(&ring->answers[slot],
					   memory_order_relaxed) ||
	    q->seq <= released || len > ring->seg->head->slot_bytes)
		return;
	memcpy(data_of(ring, slot), (const void *)(uintptr_t)q->from, len);
	atomic_store_explicit(&ring->answers[slot], number,
			      memory_order_release);
}

bool shm_pull_serve(struct shm_ring *ring, uint64_t *seen)
{
	uint64_t asked =
		atomic_load_explicit(&ring->tail->asked, memory_order_acquire);
	uint64_t released;

	if (asked == *seen)
		return false;
	*seen = asked;
	released = atomic_load_explicit(&ring->tail->released,
					memory_order_acquire);
	for (uint32_t s = 0; s < ring->seg->head->slots; s++)
		answer(ring, s, released);
	return true;
}
