/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: calls of one thread that are kept, and handed on at the end. */
#include "compat/nccl/group.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/window.h"

_Atomic int nccl_groups;

/* Most groups have a few calls, which need no memory of their own. */
#define FEW 16

static _Thread_local struct group {
	int depth;
	ncclResult_t error;                       /* the first */
	enum { UNKNOWN, WAITS, WAITS_NOT } waits; /* its communicators */
	struct nccl_call *calls;
	size_t ncalls, call_room;
	bool holds; /* something that is released at the end */
	struct nccl_task *tasks;
	size_t ntasks, task_room;
	struct ncclWindow_vidmem **windows; /* to be registered */
	size_t nwindows, window_room;
	struct nccl_call few[FEW]; /* last: not cleared */
} mine;

/* In a shared library, each access by the name of a thread's variable is a
 * call, and the compiler would put the name in the place of a known address. */
static inline struct group *own_group(void)
{
	struct group *g = &mine;

	__asm__("" : "+r"(g));
	return g;
}

bool nccl_group_of_thread(void)
{
	return mine.depth > 0;
}

static ncclResult_t fail(struct group *g, ncclResult_t result)
{
	if (g->error == ncclSuccess)
		g->error = result;
	return result;
}

ncclResult_t nccl_group_fail(ncclResult_t result)
{
	return fail(&mine, result);
}

static bool grow(struct group *g, void *list, size_t n, size_t *room,
		 size_t bytes)
{
	size_t more = *room ? 2 * *room : 16;
	void *bigger;

	if (n < *room)
		return true;
	bigger = realloc(*(void **)list, more * bytes);
	if (!bigger) {
		fail(g, nccl_refuse(ncclSystemError,
				    "group: no memory for call %zu", n));
		return false;
	}
	*(void **)list = bigger;
	*room = more;
	return true;
}

static bool make_room(struct group *g)
{
	struct nccl_call *more;

	if (g->ncalls < FEW) {
		g->calls = g->few;
		return true;
	}
	if (g->calls == g->few) {
		more = malloc(2 * sizeof(g->few));
		if (!more) {
			fail(g,
			     nccl_refuse(ncclSystemError,
					 "group: no memory for call %d", FEW));
			return false;
		}
		memcpy(more, g->few, sizeof(g->few));
		g->calls = more;
		g->call_room = 2 * (size_t)FEW;
	}
	return grow(g, &g->calls, g->ncalls, &g->call_room, sizeof(*g->calls));
}

/* The arrays are the caller's again when the call returns. */
static bool copy_counts(struct nccl_call *call)
{
	const size_t *from[] = {call->sendcounts, call->senddispls,
				call->recvcounts, call->recvdispls};
	size_t *all;
	int n = 0;

	if (nccl_from(dicomm_comm_count(call->comm->comm, &n)) != ncclSuccess)
		return false;
	all = malloc(4 * (size_t)n * sizeof(*all));
	for (int i = 0; i < 4 && all; i++) {
		if (!from[i]) {
			free(all);
			nccl_refuse(ncclInvalidArgument,
				    "%s: an array of counts or displacements "
				    "is NULL",
				    call->f);
			return false;
		}
		memcpy(all + i * n, from[i], (size_t)n * sizeof(*all));
	}
	if (!all) {
		nccl_refuse(ncclSystemError, "%s: out of memory", call->f);
		return false;
	}
	call->sendcounts = all;
	call->senddispls = all + n;
	call->recvcounts = all + 2 * n;
	call->recvdispls = all + 3 * n;
	return true;
}

/* So are these. */
static bool copy_descs(struct nccl_call *call)
{
	dicomm_wait_signal_desc_t *all;

	if (!call->count || !call->descs)
		return true; /* the library sees to that */
	all = malloc(call->count * sizeof(*all));
	if (!all) {
		nccl_refuse(ncclSystemError, "%s: out of memory", call->f);
		return false;
	}
	memcpy(all, call->descs, call->count * sizeof(*all));
	call->descs = all;
	return true;
}

/* As in NCCL, either all communicators of a group wait, or none. */
static ncclResult_t check_blocking(struct group *g, const char *f,
				   bool blocking)
{
	if (g->waits == UNKNOWN)
		g->waits = blocking ? WAITS : WAITS_NOT;
	if ((g->waits == WAITS) == blocking)
		return ncclSuccess;
	return nccl_refuse(ncclInvalidArgument,
			   "%s: communicators that block and such that do not "
			   "are in one group",
			   f);
}

/* What it was created for, too, is looked at by the library, at the end. */
static ncclResult_t check(struct group *g, const struct nccl_call *c)
{
	if (c->type < 0 || c->type > DICOMM_FLOAT8E5M2FNUZ)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: datatype %d: there is none", c->f,
				   c->type);
	if (nccl_redop_is_created(c->redop) &&
	    nccl_redop_check(c->f, c->comm, c->redop) != ncclSuccess)
		return ncclInvalidArgument;
	return check_blocking(g, c->f, c->comm->blocking);
}

/* What the caller may change or free before the end of the group */
static ncclResult_t hold(struct group *g, struct nccl_call *call)
{
	if (call->op == NCCL_ALLTOALLV || call->op == NCCL_WAIT_SIGNAL) {
		g->holds = true;
		if (call->op == NCCL_WAIT_SIGNAL)
			return copy_descs(call) ? ncclSuccess : ncclSystemError;
		return copy_counts(call) ? ncclSuccess : ncclInvalidArgument;
	}
	if (nccl_redop_is_created(call->redop)) {
		g->holds = true;
		nccl_redop_hold(call->comm, call->redop, 1);
	}
	return ncclSuccess;
}

static ncclResult_t keep(struct group *g, const struct nccl_call *call)
{
	struct nccl_call *kept;
	ncclResult_t result;

	if (!nccl_enter(call->comm))
		return fail(g, nccl_handle_refuse(call->f, call->comm));
	result = check(g, call);
	if (result == ncclSuccess && !make_room(g))
		result = g->error;
	if (result == ncclSuccess) {
		kept = &g->calls[g->ncalls];
		*kept = *call;
		result = hold(g, kept);
	}
	g->ncalls += result == ncclSuccess;
	nccl_leave(call->comm);
	return result == ncclSuccess ? result : fail(g, result);
}

bool nccl_group_call(const struct nccl_call *call, ncclResult_t *result)
{
	struct group *g = own_group();

	if (!g->depth)
		return false;
	*result = keep(g, call);
	return true;
}

ncclResult_t nccl_group_task(const struct nccl_task *task)
{
	struct group *g = own_group();
	const struct ncclComm *c = task->comm ? task->comm : task->made;
	ncclResult_t result;

	if (!grow(g, &g->tasks, g->ntasks, &g->task_room, sizeof(*task)))
		return g->error;
	g->tasks[g->ntasks++] = *task;
	result = check_blocking(g, task->f, c->blocking);
	return result == ncclSuccess ? result : fail(g, result);
}

ncclResult_t nccl_group_window(struct ncclWindow_vidmem *window)
{
	struct group *g = own_group();

	if (!grow(g, &g->windows, g->nwindows, &g->window_room,
		  sizeof(*g->windows))) {
		free(window);
		return g->error;
	}
	g->windows[g->nwindows++] = window;
	return ncclSuccess;
}

static int by_address(const void *a, const void *b)
{
	const struct ncclComm *x = *(struct ncclComm *const *)a;
	const struct ncclComm *y = *(struct ncclComm *const *)b;

	return (x > y) - (x < y);
}

/* Each once, in one order for all threads; returns how many are left. */
static size_t sort_comms(struct ncclComm **comms, size_t all)
{
	size_t n = 0;

	qsort(comms, all, sizeof(*comms), by_address);
	for (size_t i = 0; i < all; i++)
		if (!n || comms[n - 1] != comms[i])
			comms[n++] = comms[i];
	return n;
}

static ncclResult_t enter_all(struct ncclComm **comms, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (nccl_enter(comms[i]))
			continue;
		while (i--)
			nccl_leave(comms[i]);
		return nccl_handle_refuse("ncclGroupEnd", comms[i + 1]);
	}
	return ncclSuccess;
}

static dicomm_result_t run_one(const struct nccl_call *call)
{
	struct nccl_call now;

	if (!nccl_redop_is_created(call->redop))
		return nccl_call_run(call, call->comm->comm);
	now = *call;
	if (nccl_redop_now(call->comm, &now.redop) != ncclSuccess)
		return DICOMM_ERR_INVALID_USAGE;
	return nccl_call_run(&now, call->comm->comm);
}

static dicomm_result_t hand_on(struct group *g)
{
	dicomm_result_t status = DICOMM_SUCCESS, end;

	dicomm_group_start();
	for (size_t i = 0; i < g->ncalls && status == DICOMM_SUCCESS; i++)
		status = run_one(&g->calls[i]);
	end = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : end;
}

static ncclResult_t run_calls(struct group *g)
{
	struct ncclComm *few[FEW], **comms = few;
	dicomm_result_t status;
	ncclResult_t result;
	size_t n = 0;

	if (!g->ncalls)
		return ncclSuccess;
	if (g->ncalls > FEW)
		comms = malloc(g->ncalls * sizeof(*comms));
	if (!comms)
		return nccl_refuse(ncclSystemError,
				   "ncclGroupEnd: out of memory");
	/* Mostly all are of one. */
	for (size_t i = 0; i < g->ncalls; i++)
		if (!n || comms[n - 1] != g->calls[i].comm)
			comms[n++] = g->calls[i].comm;
	if (n > 1)
		n = sort_comms(comms, n);
	result = enter_all(comms, n);
	if (result == ncclSuccess) {
		status = hand_on(g);
		for (size_t i = 0; i < n; i++)
			nccl_leave(comms[i]);
		result = nccl_from(status);
	}
	if (comms != few)
		free(comms);
	return result;
}

static ncclResult_t run_windows(struct group *g)
{
	struct ncclComm **comms;
	ncclResult_t result;
	size_t n = g->nwindows;

	if (!n)
		return ncclSuccess;
	comms = malloc(n * sizeof(*comms));
	if (!comms)
		return nccl_refuse(ncclSystemError,
				   "ncclGroupEnd: out of memory");
	for (size_t i = 0; i < n; i++)
		comms[i] = g->windows[i]->comm;
	n = sort_comms(comms, n);
	result = enter_all(comms, n);
	if (result == ncclSuccess) {
		result = nccl_windows_register(g->windows, g->nwindows);
		g->nwindows = 0;
		for (size_t i = 0; i < n; i++)
			nccl_leave(comms[i]);
	}
	free(comms);
	return result;
}

/* Those that begin something, or those that end it: each may wait for the
 * others. */
static ncclResult_t run_tasks(struct group *g, bool ends)
{
	ncclResult_t result = ncclSuccess, r;
	dicomm_result_t status;
	size_t n = 0;

	if (!g->ntasks)
		return ncclSuccess;
	dicomm_group_start();
	for (size_t i = 0; i < g->ntasks; i++)
		if (nccl_task_is_end(&g->tasks[i]) == ends) {
			nccl_task_start(&g->tasks[i]);
			n++;
		}
	status = dicomm_group_end();
	if (n && status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		result = nccl_failed(status);
	for (size_t i = 0; i < g->ntasks; i++) {
		if (nccl_task_is_end(&g->tasks[i]) != ends)
			continue;
		r = nccl_task_finish(&g->tasks[i], true);
		if (r != ncclSuccess &&
		    (result == ncclSuccess || result == ncclInProgress))
			result = r;
	}
	return result;
}

static void drop_tasks(struct group *g, bool ends)
{
	for (size_t i = 0; i < g->ntasks; i++)
		if (nccl_task_is_end(&g->tasks[i]) == ends)
			nccl_task_drop(&g->tasks[i], g->error);
}

/* Back to none; what was called may be called again in another. */
static void forget(struct group *g)
{
	for (size_t i = 0; i < g->ncalls && g->holds; i++) {
		struct nccl_call *c = &g->calls[i];

		if (nccl_redop_is_created(c->redop) &&
		    nccl_enter_any(c->comm, NCCL_THERE)) {
			nccl_redop_hold(c->comm, c->redop, -1);
			nccl_leave(c->comm);
		}
		if (c->op == NCCL_ALLTOALLV)
			free((void *)(uintptr_t)c->sendcounts);
		if (c->op == NCCL_WAIT_SIGNAL && c->count)
			free((void *)(uintptr_t)c->descs);
	}
	for (size_t i = 0; i < g->nwindows; i++)
		free(g->windows[i]);
	if (g->windows)
		free(g->windows);
	if (g->calls != g->few)
		free(g->calls);
	if (g->tasks)
		free(g->tasks);
	memset(g, 0, offsetof(struct group, few));
}

ncclResult_t ncclGroupStart(void)
{
	struct group *g = own_group();

	if (!g->depth++)
		atomic_fetch_add(&nccl_groups, 1);
	return ncclSuccess;
}
NCCL_ALIAS(ncclGroupStart);

static bool is_good(ncclResult_t result)
{
	return result == ncclSuccess || result == ncclInProgress;
}

/* Ends it, however it goes; without its operations if they are only asked
 * about. */
static ncclResult_t end_group(struct group *g, bool simulated)
{
	ncclResult_t result = g->error, r;

	atomic_fetch_sub(&nccl_groups, 1);
	g->depth = 0;
	if (!g->ncalls && !g->ntasks && !g->nwindows) {
		g->error = ncclSuccess;
		return result;
	}
	if (result != ncclSuccess) {
		drop_tasks(g, false);
		drop_tasks(g, true);
		forget(g);
		return result;
	}
	result = run_tasks(g, false);
	if (result == ncclSuccess && !simulated)
		result = run_windows(g);
	if (is_good(result) && !simulated) {
		r = run_calls(g);
		if (r != ncclSuccess)
			result = r;
	}
	r = run_tasks(g, true);
	if (r != ncclSuccess && is_good(result))
		result = r;
	forget(g);
	return result;
}

ncclResult_t ncclGroupEnd(void)
{
	struct group *g = own_group();

	if (!g->depth)
		return nccl_refuse(ncclInvalidUsage,
				   "ncclGroupEnd: this thread has begun no "
				   "group");
	if (g->depth > 1) {
		g->depth--;
		return ncclSuccess;
	}
	return end_group(g, false);
}
NCCL_ALIAS(ncclGroupEnd);

/* Of the line of the table that a star begins: "* ring   12.34  chosen" */
static double chosen_us(const char *text)
{
	double us;

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (*text == '*' && sscanf(text, "* %*s %lf", &us) == 1)
			return us;
	}
	return 0;
}

/* Microseconds. What has no algorithm, as a send, takes none. */
static ncclResult_t estimate(const struct nccl_call *c, double *us)
{
	static const char *const names[] = {
		[NCCL_ALLREDUCE] = "allreduce",
		[NCCL_BROADCAST] = "broadcast",
		[NCCL_REDUCE] = "reduce",
		[NCCL_ALLGATHER] = "allgather",
		[NCCL_REDUCE_SCATTER] = "reduce_scatter",
		[NCCL_ALLTOALL] = "alltoall",
		[NCCL_GATHER] = "gather",
		[NCCL_SCATTER] = "scatter",
		[NCCL_REDUCE_LOCAL] = NULL,
	};
	char text[4096];
	dicomm_result_t status;

	*us = 0;
	if ((size_t)c->op >= sizeof(names) / sizeof(*names) || !names[c->op] ||
	    !c->count)
		return ncclSuccess;
	if (!nccl_enter(c->comm))
		return nccl_handle_refuse("ncclGroupSimulateEnd", c->comm);
	status = dicomm_comm_explain(c->comm->comm, names[c->op], c->count,
				     (dicomm_datatype_t)c->type, text,
				     sizeof(text));
	nccl_leave(c->comm);
	if (status == DICOMM_SUCCESS)
		*us = chosen_us(text);
	return nccl_from(status);
}

/* Those of one communicator come one after the other. */
static ncclResult_t estimate_all(const struct group *g, float *us)
{
	double longest = 0;

	for (size_t i = 0; i < g->ncalls; i++) {
		double sum = 0, one;

		for (size_t k = 0; k < g->ncalls; k++) {
			ncclResult_t r;

			if (g->calls[k].comm != g->calls[i].comm)
				continue;
			if (k < i)
				break; /* seen with an earlier one */
			r = estimate(&g->calls[k], &one);
			if (r != ncclSuccess)
				return r;
			sum += one;
		}
		if (sum > longest)
			longest = sum;
	}
	*us = (float)longest;
	return ncclSuccess;
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
	struct group *g = own_group();
	ncclResult_t result = ncclSuccess;
	float us = -1;

	if (!g->depth)
		return nccl_refuse(
			ncclInvalidUsage,
			"ncclGroupSimulateEnd: this thread has begun "
			"no group");
	if (g->depth > 1) {
		g->depth--;
		return ncclSuccess;
	}
	if (info &&
	    (info->magic != NCCL_SIM_INFO_MAGIC || info->size < sizeof(*info)))
		result = nccl_refuse(ncclInvalidArgument,
				     "ncclGroupSimulateEnd: info: magic 0x%x, "
				     "size %zu: not initialised by "
				     "NCCL_SIM_INFO_INITIALIZER",
				     info->magic, info->size);
	if (result == ncclSuccess && g->error == ncclSuccess)
		result = estimate_all(g, &us);
	if (result != ncclSuccess)
		fail(g, result);
	result = end_group(g, true);
	if (is_good(result) && info)
		info->estimatedTime = us;
	return result;
}
NCCL_ALIAS(ncclGroupSimulateEnd);
