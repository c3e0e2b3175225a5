/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for what was begun on the communicator of a vendor's library. */
#include <stdio.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/wait_chain.h"
#include "src/island/island.h"

/* Longer than any wait */
#define NOTE_MS (UINT64_C(1) << 40)

static dicomm_result_t status_of(int result)
{
	switch (result) {
	case VENDOR_DEVICE_ERROR:
		return DICOMM_ERR_DEVICE;
	case VENDOR_SYSTEM_ERROR:
		return DICOMM_ERR_SYSTEM;
	case VENDOR_REMOTE_ERROR:
		return DICOMM_ERR_REMOTE;
	case VENDOR_TIMEOUT:
		return DICOMM_ERR_TIMEOUT;
	default:
		return DICOMM_ERR_INTERNAL;
	}
}

/* May it go on? */
static dicomm_result_t check(const struct island *is, const char *what,
			     uint64_t since_ms, int timeout_ms)
{
	if (fault_is(is->comm))
		return fault_report(is->comm);
	if (atomic_load(&is->comm->cancelled))
		return FAIL(DICOMM_ERR_ABORTED, "%s: cancelled", what);
	if (timeout_ms > 0 && clock_ms() - since_ms >= (uint64_t)timeout_ms)
		return FAIL(DICOMM_ERR_TIMEOUT,
			    "%s of %s is not done after %d ms", what,
			    is->library->path, timeout_ms);
	return DICOMM_SUCCESS;
}

dicomm_result_t island_settle_look(struct island *is,
				   struct vendor_comm *vendor, int *result,
				   const char *what, uint64_t since_ms,
				   int timeout_ms)
{
	const struct vendor_functions *f = &is->library->f;

	if (*result == VENDOR_IN_PROGRESS) {
		TRY(check(is, what, since_ms, timeout_ms));
		if (f->async_error(vendor, result) != VENDOR_SUCCESS)
			*result = VENDOR_SYSTEM_ERROR;
	}
	if (*result == VENDOR_SUCCESS)
		return DICOMM_SUCCESS;
	if (*result == VENDOR_IN_PROGRESS)
		return DICOMM_IN_PROGRESS;
	return FAIL(status_of(*result), "%s of %s: %s", what, is->library->path,
		    f->error_string(*result));
}

/* The vendor's library does not say for which rank it waits. The next one of
 * the island stands for all of them: if that waits in it, too, its next one is
 * asked, and so on, to the one that does not. */
static int next_of(const struct island *is)
{
	uint32_t size = is->size[is->mine];
	uint32_t next = (is->index[is->comm->rank] + 1) % size;

	return (int)is->rank[is->first[is->mine] + next];
}

void island_settle_note(struct island *is, bool waits)
{
	struct dicomm_comm *comm = is->comm;
	struct wait_note n = {.peer = waits ? next_of(is) : -1};

	n.number = call_log_latest(&comm->logs.collective, &n.what, &n.count);
	wait_chain_note(comm, &n, waits ? NOTE_MS : 0);
}

dicomm_result_t island_settle_late(struct island *is, const char *hint)
{
	struct dicomm_comm *comm = is->comm;
	uint64_t waited = (uint64_t)atomic_load(&comm->timeout_ms);
	char why[200], chain[280];
	int next = next_of(is), culprit;

	snprintf(why, sizeof(why), "%s", log_last_error());
	/* The chain comes last: what is too long loses its end. */
	culprit = wait_chain_follow(comm, next, waited, chain, sizeof(chain));
	return fault_raise(comm, DICOMM_ERR_TIMEOUT, culprit, true,
			   "rank %d: %s%s: waiting for rank %d%s", comm->rank,
			   why, hint, next, chain);
}

void island_settle_nap(long *ns)
{
	struct timespec pause = {0, *ns};

	nanosleep(&pause, NULL);
	/* Its own threads need the core. */
	if (*ns < 1000000)
		*ns += *ns / 2;
}

dicomm_result_t island_settle(struct island *is, struct vendor_comm *vendor,
			      int result, const char *what, int timeout_ms)
{
	uint64_t begin = clock_ms();
	long nap = ISLAND_NAP_NS;
	dicomm_result_t status;

	while ((status = island_settle_look(is, vendor, &result, what, begin,
					    timeout_ms)) == DICOMM_IN_PROGRESS)
		island_settle_nap(&nap);
	return status;
}
