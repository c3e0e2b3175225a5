/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows begin and end: calls of all ranks. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "src/base/cancel.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/share.h"
#include "src/core/memory.h"
#include "src/core/wait.h"
#include "src/device/device.h"
#include "src/stream/submit.h"
#include "src/window/window.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define FLAGS                                             \
	(DICOMM_WINDOW_SYMMETRIC | DICOMM_WINDOW_STRICT | \
	 DICOMM_WINDOW_ENDS_ALONE)

static struct handle_pool pool = HANDLE_POOL(struct dicomm_window);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	handle_pool_forget(&pool);
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forked);
}

void window_free(struct dicomm_window *w)
{
	struct dicomm_window **at = &w->comm->windows->first;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
	comm_mem_deregister(w->comm, &w->handles);
	free(w->sizes);
	handle_free(&pool, w);
}

/* What each rank tells the others */
struct opinion {
	uint64_t bytes;
	uint32_t id, status;
};

static dicomm_result_t agree(struct dicomm_window *w, dicomm_result_t status)
{
	struct dicomm_comm *comm = w->comm;
	struct opinion mine = {w->bytes, w->id, (uint32_t)status};
	struct opinion *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t result;

	w->sizes = calloc((size_t)comm->ranks, sizeof(*w->sizes));
	if (!all || !w->sizes) {
		free(all);
		return fault_own(comm,
				 FAIL(DICOMM_ERR_NO_MEMORY,
				      "window_register: no memory for %d ranks",
				      comm->ranks),
				 -1);
	}
	result = control_allgather(comm->control, &mine, all, sizeof(mine),
				   atomic_load(&comm->timeout_ms));
	if (result != DICOMM_SUCCESS)
		result = fault_own(comm, result, -1);
	for (int r = 0; r < comm->ranks && result == DICOMM_SUCCESS &&
			status == DICOMM_SUCCESS;
	     r++) {
		w->sizes[r] = all[r].bytes;
		if (all[r].status != DICOMM_SUCCESS)
			result =
				FAIL((dicomm_result_t)all[r].status,
				     "window_register: rank %d has none: %s", r,
				     dicomm_get_error_string(
					     (dicomm_result_t)all[r].status));
		else if (all[r].id != w->id)
			result = FAIL(DICOMM_ERR_INVALID_USAGE,
				      "window_register: window %u of rank %d "
				      "is window %u of rank %d",
				      w->id, comm->rank, all[r].id, r);
	}
	free(all);
	return status != DICOMM_SUCCESS ? status : result;
}

static dicomm_result_t check_memory(const struct dicomm_comm *comm, void *buff,
				    size_t size)
{
	static const char f[] = "window_register";

	if (size && !buff)
		return BAD("%s: buff is NULL, size is %zu", f, size);
	if (size > PTRDIFF_MAX || size > UINTPTR_MAX - (uintptr_t)buff)
		return BAD("%s: size %zu: more than can be addressed from %p "
			   "on",
			   f, size, buff);
	if (device_has_memory(comm->dev) && comm_never_stages(comm))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s: bytes of windows on %s pass through host "
			    "memory, and staging of rank %d is never",
			    f, comm->device, comm->rank);
	return size ? device_check(comm, f, "buff", buff) : DICOMM_SUCCESS;
}

struct registering {
	struct dicomm_comm *comm;
	dicomm_window_t *out;
	void *buff;
	size_t size;
	bool ends_alone;
};

/* In the data path: peers may put as soon as they have heard of this rank. */
static dicomm_result_t add(struct dicomm_window *w)
{
	struct dicomm_comm *comm = w->comm;
	dicomm_result_t status = check_memory(comm, w->at, w->bytes);

	if (status == DICOMM_SUCCESS && w->bytes && !w->on_device)
		status = comm_mem_register(comm, w->at, w->bytes, true,
					   &w->handles);
	w->id = ++comm->windows->registered;
	w->next = comm->windows->first;
	comm->windows->first = w;
	status = agree(w, status);
	if (status != DICOMM_SUCCESS)
		window_free(w);
	return status;
}

static dicomm_result_t register_now(void *arg)
{
	struct registering *r = arg;
	struct dicomm_comm *comm = r->comm;
	struct dicomm_window *w = handle_alloc(&pool);
	dicomm_result_t status;
	bool entered = false;

	if (!w)
		status = fault_own(comm,
				   FAIL(DICOMM_ERR_NO_MEMORY,
					"window_register: out of memory"),
				   -1);
	else if (!(entered = share_enter(comm)))
		status = fault_report(comm);
	else
		status = windows_begin(comm);
	/* The others must not wait for this rank. */
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		status = fault_own(comm, status, -1);
	if (w) {
		w->magic = WINDOW_MAGIC;
		w->comm = comm;
		w->at = r->buff;
		w->bytes = r->size;
		w->on_device = device_has_memory(comm->dev);
		w->ends_alone = r->ends_alone;
		if (status == DICOMM_SUCCESS)
			status = add(w);
		else
			handle_free(&pool, w);
	}
	if (entered)
		comm_leave(comm);
	if (status == DICOMM_SUCCESS)
		*r->out = w;
	free(r);
	return status;
}

/* What is queued ends first, since another thread has the data path. */
static dicomm_result_t settle(struct dicomm_comm *comm)
{
	while (atomic_load_explicit(&comm->queued, memory_order_acquire))
		sched_yield();
	return fault_is(comm) ? fault_report(comm) : DICOMM_SUCCESS;
}

static dicomm_result_t register_settled(void *arg)
{
	struct registering *r = arg;
	dicomm_result_t status = settle(r->comm);

	if (status == DICOMM_SUCCESS)
		return register_now(r);
	free(r);
	return status;
}

dicomm_result_t dicomm_comm_window_register(dicomm_comm_t comm, void *buff,
					    size_t size, dicomm_window_t *win,
					    int flags)
{
	CANCEL_HELD();
	static const char f[] = "window_register";
	struct registering *r;

	if (!win)
		return BAD("%s: win is NULL", f);
	*win = NULL;
	TRY(comm_check(comm, f));
	if (flags & ~FLAGS)
		return BAD("%s: flags 0x%x: not in 0x%x", f, (unsigned)flags,
			   FLAGS);
	pthread_once(&once, setup);
	r = malloc(sizeof(*r));
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", f);
	*r = (struct registering){comm, win, buff, size,
				  flags & DICOMM_WINDOW_ENDS_ALONE};
	return group_init(comm, register_settled, free, r);
}

/* ---- the end ---- */

/* Wait until all that this rank has put was taken, or all that lies outside of
 * the transports' slots. */
static dicomm_result_t deliver(struct dicomm_comm *comm, bool only_queued)
{
	struct call call = {.coll = COLL_SIGNAL, .type = DICOMM_INT8};
	struct wait_for f = {.comm = comm,
			     .call = &call,
			     .number = comm->stats.operations,
			     .sending = true,
			     .alone = true,
			     .lends = true};
	const struct windows *all = comm->windows;

	for (int i = 0; i < all->nouts; i++) {
		struct waiter w = {0};

		f.peer = call.root = all->outs[i];
		while (only_queued ? partner_of(comm, f.peer)->first != NULL
				   : outgoing_pending(comm, f.peer)) {
			bool moved = false;

			TRY(windows_look_at_device(comm, &moved));
			TRY(outgoing_turn(comm, f.peer, &moved));
			TRY(wait_more(&w, &f));
		}
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t deliver_all(struct dicomm_comm *comm, bool only_queued)
{
	dicomm_result_t status;

	if (!share_enter(comm))
		return fault_report(comm);
	status = deliver(comm, only_queued);
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		status = fault_own(comm, status, -1);
	comm_leave(comm);
	return status;
}

static void remove_window(struct dicomm_window *w)
{
	struct dicomm_comm *comm = w->comm;

	if (share_enter(comm)) {
		window_free(w);
		comm_leave(comm);
		return;
	}
	/* Nobody uses a broken communicator any more. */
	fault_stop_transports(comm);
	fault_wait(comm);
	window_free(w);
}

static dicomm_result_t deregister_now(void *arg)
{
	struct dicomm_window *w = arg;
	struct dicomm_comm *comm = w->comm;
	dicomm_result_t status = settle(comm);

	/* A reply to a get may still be read from it. */
	if (status == DICOMM_SUCCESS)
		status = deliver_all(comm, w->ends_alone);
	/* The others have done the same: nothing comes any more. */
	if (status == DICOMM_SUCCESS && !w->ends_alone)
		status = dicomm_barrier(comm, NULL);
	if (status == DICOMM_SUCCESS && !w->ends_alone && comm->dev)
		status = dicomm_comm_stream_synchronize(comm, NULL);
	remove_window(w);
	return status;
}

dicomm_result_t dicomm_comm_window_deregister(dicomm_comm_t comm,
					      dicomm_window_t win)
{
	CANCEL_HELD();
	static const char f[] = "window_deregister";

	TRY(comm_check_handle(comm, f));
	if (!win || win->magic != WINDOW_MAGIC || win->comm != comm)
		return BAD("%s: win %p: no window of this communicator, or it "
			   "was deregistered",
			   f, (void *)win);
	return group_init(comm, deregister_now, NULL, win);
}
