/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/shm/exchange.h"

_Static_assert(TP_BUFFERS <= 32, "a bit for each");

static void place(struct shm_exchange *x, uint32_t first,
		  const uint8_t *buffers, uint64_t bytes)
{
	for (uint32_t i = 0; i < SHM_EXCHANGE_BUFFERS; i++)
		x->buffers.at[first + i] = buffers + i * bytes;
}

/* A peer that breaks the rules may send twice in one buffer. */
static void add(struct shm_exchange *x, uint32_t number)
{
	if (x->is_held & UINT32_C(1) << number)
		return;
	x->is_held |= UINT32_C(1) << number;
	x->held[x->count++] = (uint8_t)number;
}

void shm_exchange_theirs(struct shm_exchange *x, const uint8_t *buffers,
			 uint64_t bytes)
{
	place(x, 0, buffers, bytes);
}

void shm_exchange_ours(struct shm_exchange *x, const uint8_t *buffers,
		       uint64_t bytes)
{
	place(x, SHM_EXCHANGE_BUFFERS, buffers, bytes);
	for (uint32_t i = TP_BUFFERS; i-- > SHM_EXCHANGE_BUFFERS;)
		add(x, i);
}

/* Adds the buffers whose messages have been released since. */
static void collect(struct shm_exchange *x, uint64_t released)
{
	struct tp_buffers *b = &x->buffers;

	for (uint32_t left = b->arrived; left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(left);

		if (b->seq[i] > released)
			continue;
		b->arrived &= ~(UINT32_C(1) << i);
		add(x, i);
	}
}

uint8_t *shm_exchange_take(struct shm_exchange *x, uint64_t released,
			   uint8_t *number)
{
	uint32_t i;

	collect(x, released);
	if (!x->count)
		return NULL;
	i = x->held[--x->count];
	x->is_held &= ~(UINT32_C(1) << i);
	*number = (uint8_t)(i ^ SHM_EXCHANGE_BUFFERS);
	return (uint8_t *)(uintptr_t)x->buffers.at[i];
}
