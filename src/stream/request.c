/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: the end of an operation on a host stream. */
#include "src/stream/request.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/core/comm.h"

#define REQUEST_MAGIC UINT64_C(0xd1c04e90e57a0001)

static struct handle_pool pool = HANDLE_POOL(struct dicomm_request);

void request_init(struct dicomm_request *r)
{
	/* Not the text: it is long, and only failures have one. */
	r->magic = 0;
	atomic_init(&r->refs, 0);
	atomic_init(&r->state, REQUEST_PENDING);
	r->status = DICOMM_SUCCESS;
	r->call = NULL;
	r->called = false;
	r->next = NULL;
}

struct dicomm_request *request_new(void)
{
	struct dicomm_request *r = handle_alloc(&pool);

	if (!r)
		return NULL;
	request_init(r);
	r->magic = REQUEST_MAGIC;
	r->generation = atomic_load(&comm_generation);
	atomic_init(&r->refs, 2);
	return r;
}

void request_put(struct dicomm_request *r)
{
	if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	handle_free(&pool, r);
}

bool request_end(struct dicomm_request *r, dicomm_result_t status,
		 const char *text)
{
	bool owned = atomic_load_explicit(&r->refs, memory_order_relaxed);

	r->status = status;
	if (status != DICOMM_SUCCESS)
		snprintf(r->text, sizeof(r->text), "%s", text);
	/* From here on, a waiter may free a request on its stack. The address
	 * is only the key under which it may sleep. */
	if (atomic_exchange_explicit(&r->state, REQUEST_DONE,
				     memory_order_acq_rel) == REQUEST_SLEEPING)
		syscall(SYS_futex, &r->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL,
			NULL, 0);
	return owned;
}

bool request_lie_down(struct dicomm_request *r)
{
	uint32_t pending = REQUEST_PENDING;

	atomic_compare_exchange_strong(&r->state, &pending, REQUEST_SLEEPING);
	return pending != REQUEST_DONE;
}

void request_rouse(struct dicomm_request *r)
{
	uint32_t sleeping = REQUEST_SLEEPING;

	if (atomic_compare_exchange_strong(&r->state, &sleeping,
					   REQUEST_PENDING))
		syscall(SYS_futex, &r->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL,
			NULL, 0);
}

void request_doze(struct dicomm_request *r, uint64_t end_ns)
{
	struct timespec t = {.tv_sec = (time_t)(end_ns / 1000000000u),
			     .tv_nsec = (long)(end_ns % 1000000000u)};

	syscall(SYS_futex, &r->state, FUTEX_WAIT_BITSET_PRIVATE,
		REQUEST_SLEEPING, end_ns ? &t : NULL, NULL,
		FUTEX_BITSET_MATCH_ANY);
}

void request_sleep(struct dicomm_request *r, uint64_t end_ns)
{
	if (request_lie_down(r))
		request_doze(r, end_ns);
}

dicomm_result_t request_check(const struct dicomm_request *r, const char *f)
{
	if (!r || r->magic != REQUEST_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: request %p is not a request", f,
			    (const void *)r);
	if (r->generation !=
	    atomic_load_explicit(&comm_generation, memory_order_relaxed))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: request %p belongs to the parent of this "
			    "process",
			    f, (const void *)r);
	return DICOMM_SUCCESS;
}
