/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows begin and end: calls of all ranks. */
#include <sched.h>
#include <stdlib.h>

#include "src/base/cancel.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/data_path.h"
#include "src/core/member.h"
#include "src/core/memory.h"
#include "src/core/setup_call.h"
#include "src/core/wait.h"
#include "src/device/device.h"
#include "src/stream/submit.h"
#include "src/window/window.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define FLAGS                                             \
	(DICOMM_WINDOW_SYMMETRIC | DICOMM_WINDOW_STRICT | \
	 DICOMM_WINDOW_ENDS_ALONE)

/* All other pairs that stage were refused when the communicator began. */
static dicomm_result_t check_paths(const struct dicomm_comm *comm,
				   const char *f)
{
	if (!device_has_memory(comm->dev))
		return DICOMM_SUCCESS;
	for (int r = 0; r < comm->ranks; r++)
		if (comm->peers[r].has_peer_access &&
		    comm->peers[r].neighbour->maps &&
		    (comm_never_stages(comm) || comm->members[r].never_staged))
			return FAIL(DICOMM_ERR_UNSUPPORTED,
				    "%s: bytes of windows between %s and rank "
				    "%d (host) pass through host memory, and "
				    "staging of rank %d is never",
				    f, comm->device, r,
				    comm_never_stages(comm) ? comm->rank : r);
	return DICOMM_SUCCESS;
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
	TRY(check_paths(comm, f));
	return size ? device_check(comm, f, "buff", buff) : DICOMM_SUCCESS;
}

struct registering {
	struct dicomm_comm *comm;
	dicomm_window_t *out;
	void *buff;
	size_t size;
	int flags;
	struct setup_refusal refusal;
};

/* In the data path: peers may put as soon as they have heard of this rank. A
 * window that is refused has its number on all ranks, too. */
static void add(struct dicomm_window *w, struct setup_refusal *refusal)
{
	struct dicomm_comm *comm = w->comm;

	setup_refuse(refusal, check_memory(comm, w->at, w->bytes));
	if (refusal->status == DICOMM_SUCCESS && w->bytes && !w->on_device)
		setup_refuse(refusal, comm_mem_register(comm, w->at, w->bytes,
							true, &w->handles));
	if (refusal->status == DICOMM_SUCCESS && w->bytes && w->on_device)
		setup_refuse(refusal, user_buffer_add(comm, w->at, w->bytes,
						      &w->buffer));
	window_add(w);
}

/* The others wait for this rank: what it cannot say in the agreement, it tells
 * them by a fault. */
static dicomm_result_t give_up(struct dicomm_comm *comm, dicomm_result_t status)
{
	return fault_is(comm) ? fault_report(comm)
			      : fault_own(comm, status, -1);
}

static dicomm_result_t make(struct registering *r, struct dicomm_window **out)
{
	struct dicomm_comm *comm = r->comm;
	struct dicomm_window *w = window_make(comm);
	dicomm_result_t status;

	if (!w)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "window_register: out of memory");
	if (!data_path_await(&comm->path)) {
		window_free(w);
		return fault_report(comm);
	}
	w->at = r->buff;
	w->bytes = r->size;
	w->on_device = device_has_memory(comm->dev);
	w->ends_alone = r->flags & DICOMM_WINDOW_ENDS_ALONE;
	status = windows_begin(comm);
	if (comm->windows) {
		setup_refuse(&r->refusal, status);
		status = DICOMM_SUCCESS;
		add(w, &r->refusal);
	}
	data_path_leave(&comm->path);
	*out = w;
	return status;
}

/* All ranks say the same, or each finds the same difference. */
static dicomm_result_t compare(struct dicomm_window *w,
			       const struct setup_part *parts)
{
	for (int r = 0; r < w->comm->ranks; r++) {
		const uint64_t *theirs = parts[r].words;

		w->sizes[r] = theirs[0];
		if (theirs[1] != parts[0].words[1])
			return FAIL(DICOMM_ERR_INTERNAL,
				    "window_register: window %u of rank 0 is "
				    "window %u of rank %d",
				    (unsigned)parts[0].words[1],
				    (unsigned)theirs[1], r);
		if (theirs[2] != parts[0].words[2])
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "window_register: flags: rank %d gives "
				    "DICOMM_WINDOW_ENDS_ALONE, and rank %d "
				    "does not",
				    theirs[2] ? r : 0, theirs[2] ? 0 : r);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t agree(struct dicomm_window *w,
			     const struct setup_refusal *refusal)
{
	const uint64_t words[SETUP_WORDS] = {w->bytes, w->id, w->ends_alone};
	struct setup_part *parts;
	dicomm_result_t status = setup_agree(w->comm, SETUP_WINDOW_REGISTER,
					     refusal, words, &parts);

	if (!parts)
		return give_up(w->comm, status);
	if (status == DICOMM_SUCCESS)
		status = compare(w, parts);
	free(parts);
	return status;
}

static void remove_window(struct dicomm_window *w)
{
	struct dicomm_comm *comm = w->comm;

	if (data_path_await(&comm->path)) {
		window_free(w);
		data_path_leave(&comm->path);
		return;
	}
	/* Nobody uses a broken communicator any more. */
	fault_stop_transports(comm);
	fault_wait(comm);
	if (comm->dev)
		device_quiesce(comm);
	window_free(w);
}

/* What is queued ends first, since another thread has the data path. */
static dicomm_result_t settle(struct dicomm_comm *comm)
{
	while (data_path_queued(&comm->path))
		sched_yield();
	return fault_is(comm) ? fault_report(comm) : DICOMM_SUCCESS;
}

static dicomm_result_t register_now(void *arg)
{
	struct registering *r = arg;
	struct dicomm_window *w = NULL;
	dicomm_result_t status = settle(r->comm);

	if (status == DICOMM_SUCCESS) {
		status = make(r, &w);
		if (status != DICOMM_SUCCESS)
			status = give_up(r->comm, status);
	}
	if (status == DICOMM_SUCCESS)
		status = agree(w, &r->refusal);
	if (status == DICOMM_SUCCESS)
		*r->out = w;
	else if (w)
		remove_window(w);
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

	if (win)
		*win = NULL;
	TRY(comm_check(comm, f));
	r = malloc(sizeof(*r));
	if (!r)
		return give_up(comm, FAIL(DICOMM_ERR_NO_MEMORY,
					  "%s: out of memory", f));
	*r = (struct registering){comm, win, buff, size, flags, {0}};
	if (!win)
		setup_refuse(&r->refusal, BAD("%s: win is NULL", f));
	if (flags & ~FLAGS)
		setup_refuse(&r->refusal, BAD("%s: flags 0x%x: not in 0x%x", f,
					      (unsigned)flags, FLAGS));
	return group_init(comm, register_now, free, r);
}

/* ---- the end ---- */

/* Wait until all that this rank has put was taken, or all that lies outside of
 * the transports' slots. */
static dicomm_result_t deliver(struct dicomm_comm *comm, bool only_queued)
{
	struct call call = {.function = CALL_SIGNAL, .type = DICOMM_INT8};
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

	if (!data_path_await(&comm->path))
		return fault_report(comm);
	status = deliver(comm, only_queued);
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		status = fault_own(comm, status, -1);
	data_path_leave(&comm->path);
	return status;
}

/* What the device of this rank still copies into its windows. Its peers have
 * done their part. */
static dicomm_result_t land(struct dicomm_comm *comm)
{
	struct call call = {.function = CALL_WAIT_SIGNAL, .type = DICOMM_INT8};
	struct wait_for f = {.comm = comm,
			     .call = &call,
			     .number = comm->stats.operations,
			     .peer = -1,
			     .alone = true,
			     .lends = true};
	const struct windows *all = comm->windows;

	for (int i = 0; i < all->nknown; i++) {
		const struct partner *from = partner_of(comm, all->known[i]);
		uint64_t last = from->landings;
		struct waiter w = {0};

		call.root = all->known[i];
		while (from->lands &&
		       device_stage_of(comm->dev, from, STAGE_WINDOW, last)) {
			bool moved = false;

			TRY(windows_look_at_device(comm, &moved));
			TRY(wait_more(&w, &f));
		}
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t land_all(struct dicomm_comm *comm)
{
	dicomm_result_t status;

	if (!data_path_await(&comm->path))
		return fault_report(comm);
	status = land(comm);
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		status = fault_own(comm, status, -1);
	data_path_leave(&comm->path);
	return status;
}

struct deregistering {
	struct dicomm_comm *comm;
	struct dicomm_window *w; /* NULL: refused */
	struct setup_refusal refusal;
};

/* All ranks end the same window. */
static dicomm_result_t agree_on_end(const struct deregistering *d)
{
	const uint64_t words[SETUP_WORDS] = {d->w ? d->w->id : 0};
	struct setup_part *parts;
	dicomm_result_t status = setup_agree(d->comm, SETUP_WINDOW_DEREGISTER,
					     &d->refusal, words, &parts);

	if (!parts)
		return give_up(d->comm, status);
	for (int r = 1; r < d->comm->ranks && status == DICOMM_SUCCESS; r++)
		if (parts[r].words[0] != parts[0].words[0])
			status = FAIL(DICOMM_ERR_INVALID_USAGE,
				      "window_deregister: win: rank 0 gives "
				      "its window %u, rank %d its window %u",
				      (unsigned)parts[0].words[0], r,
				      (unsigned)parts[r].words[0]);
	free(parts);
	return status;
}

/* A rank whose window is refused takes part. */
static dicomm_result_t end_with_all(const struct deregistering *d)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	/* A reply to a get may still be read from it. */
	if (d->w)
		status = deliver_all(d->comm, false);
	/* The others have done the same: nothing comes any more. Not by an
	 * operation where there are devices: two ranks may have one default
	 * stream, which the first would block for the second. */
	if (status == DICOMM_SUCCESS && !d->comm->peer_access)
		status = dicomm_barrier(d->comm, NULL);
	if (status == DICOMM_SUCCESS)
		status = agree_on_end(d);
	return status;
}

static dicomm_result_t deregister_now(void *arg)
{
	struct deregistering *d = arg;
	struct dicomm_comm *comm = d->comm;
	struct dicomm_window *w = d->w;
	dicomm_result_t status = settle(comm);

	if (status == DICOMM_SUCCESS)
		status = w && w->ends_alone ? deliver_all(comm, true)
					    : end_with_all(d);
	if (status == DICOMM_SUCCESS && device_has_memory(comm->dev))
		status = land_all(comm);
	if (w && (status == DICOMM_SUCCESS || !comm_usable(comm)))
		remove_window(w);
	free(d);
	return status;
}

/* Its memory stays readable for a while. */
static bool ended_alone(const struct dicomm_window *w)
{
	return w && !w->magic && w->ends_alone;
}

dicomm_result_t dicomm_comm_window_deregister(dicomm_comm_t comm,
					      dicomm_window_t win)
{
	CANCEL_HELD();
	static const char f[] = "window_deregister";
	struct deregistering *d;
	dicomm_result_t status = DICOMM_SUCCESS;

	TRY(comm_check_handle(comm, f));
	if (!win || win->magic != WINDOW_MAGIC || win->comm != comm)
		status = BAD("%s: win %p: no window of this communicator, or "
			     "it was deregistered",
			     f, (void *)win);
	/* Nobody else is in the call. */
	if (status != DICOMM_SUCCESS &&
	    (!comm_usable(comm) || ended_alone(win)))
		return status;
	d = malloc(sizeof(*d));
	if (!d)
		return give_up(comm, FAIL(DICOMM_ERR_NO_MEMORY,
					  "%s: out of memory", f));
	*d = (struct deregistering){
		comm, status == DICOMM_SUCCESS ? win : NULL, {0}};
	setup_refuse(&d->refusal, status);
	return group_init(comm, deregister_now, free, d);
}
