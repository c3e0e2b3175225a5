/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of operations that can go on: from any thread to the driver. */
#include "src/engine/woken.h"

static _Atomic(struct operation *) newest;

void woken_add(struct operation *op)
{
	struct operation *next;

	if (!op->owner || atomic_exchange(&op->woken, true))
		return;
	next = atomic_load_explicit(&newest, memory_order_relaxed);
	do {
		op->woken_next = next;
	} while (!atomic_compare_exchange_weak_explicit(&newest, &next, op,
							memory_order_release,
							memory_order_relaxed));
}

struct operation *woken_take(void)
{
	struct operation *op, *next, *oldest = NULL;

	if (!atomic_load_explicit(&newest, memory_order_relaxed))
		return NULL;
	op = atomic_exchange_explicit(&newest, NULL, memory_order_acquire);
	for (; op; op = next) {
		next = op->woken_next;
		op->woken_next = oldest;
		oldest = op;
	}
	return oldest;
}

void woken_taken(struct operation *op)
{
	atomic_store(&op->woken, false);
}

void woken_forget(void)
{
	atomic_store(&newest, NULL);
}
