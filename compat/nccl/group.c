/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: calls of one thread that are kept, and handed on at the end. */
#include "compat/nccl/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/window.h"

_Atomic int nccl_groups;

/* Most groups have a few calls, which need no memory of their own. */
#define FEW 16

static _Thread_local struct nccl_call few_calls[FEW];

static _Thread_local struct {
	int depth;
	ncclResult_t error;                       /* the first */
	enum { UNKNOWN, WAITS, WAITS_NOT } waits; /* its communicators */
	struct nccl_call *calls;
	size_t ncalls, call_room;
	struct nccl_task *tasks;
	size_t ntasks, task_room;
	struct ncclWindow_vidmem **windows; /* to be registered */
	size_t nwindows, window_room;
} group;

bool nccl_group_of_thread(void)
{
	return group.depth > 0;
}

ncclResult_t nccl_group_fail(ncclResult_t result)
{
	if (group.error == ncclSuccess)
		group.error = result;
	return result;
}

static bool grow(void *list, size_t n, size_t *room, size_t bytes)
{
	size_t more = *room ? 2 * *room : 16;
	void *bigger;

	if (n < *room)
		return true;
	bigger = realloc(*(void **)list, more * bytes);
	if (!bigger) {
		nccl_group_fail(nccl_refuse(
			ncclSystemError, "group: no memory for call %zu", n));
		return false;
	}
	*(void **)list = bigger;
	*room = more;
	return true;
}

static bool make_room(void)
{
	struct nccl_call *more;

	if (group.ncalls < FEW) {
		group.calls = few_calls;
		return true;
	}
	if (group.calls == few_calls) {
		more = malloc(2 * sizeof(few_calls));
		if (!more) {
			nccl_group_fail(nccl_refuse(
				ncclSystemError, "group: no memory for call %d",
				FEW));
			return false;
		}
		memcpy(more, few_calls, sizeof(few_calls));
		group.calls = more;
		group.call_room = 2 * (size_t)FEW;
	}
	return grow(&group.calls, group.ncalls, &group.call_room,
		    sizeof(*group.calls));
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
static ncclResult_t check_blocking(const char *f, bool blocking)
{
	if (group.waits == UNKNOWN)
		group.waits = blocking ? WAITS : WAITS_NOT;
	if ((group.waits == WAITS) == blocking)
		return ncclSuccess;
	return nccl_refuse(ncclInvalidArgument,
			   "%s: communicators that block and such that do not "
			   "are in one group",
			   f);
}

/* What it was created for, too, is looked at by the library, at the end. */
static ncclResult_t check(const struct nccl_call *c)
{
	if (c->type < 0 || c->type > DICOMM_FLOAT8E5M2FNUZ)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: datatype %d: there is none", c->f,
				   c->type);
	if (nccl_redop_is_created(c->redop) &&
	    nccl_redop_check(c->f, c->comm, c->redop) != ncclSuccess)
		return ncclInvalidArgument;
	return check_blocking(c->f, c->comm->blocking);
}

ncclResult_t nccl_group_call(const struct nccl_call *call)
{
	struct nccl_call *kept;
	ncclResult_t result;

	if (!nccl_enter(call->comm))
		return nccl_group_fail(nccl_handle_refuse(call->f, call->comm));
	result = check(call);
	if (result == ncclSuccess && !make_room())
		result = group.error;
	if (result == ncclSuccess) {
		kept = &group.calls[group.ncalls];
		*kept = *call;
		if (call->op == NCCL_ALLTOALLV && !copy_counts(kept))
			result = ncclInvalidArgument;
		if (call->op == NCCL_WAIT_SIGNAL && !copy_descs(kept))
			result = ncclSystemError;
	}
	if (result == ncclSuccess) {
		group.ncalls++;
		if (nccl_redop_is_created(call->redop))
			nccl_redop_hold(call->comm, call->redop, 1);
	}
	nccl_leave(call->comm);
	return result == ncclSuccess ? result : nccl_group_fail(result);
}

ncclResult_t nccl_group_task(const struct nccl_task *task)
{
	const struct ncclComm *c = task->comm ? task->comm : task->made;
	ncclResult_t result;

	if (!grow(&group.tasks, group.ntasks, &group.task_room, sizeof(*task)))
		return group.error;
	group.tasks[group.ntasks++] = *task;
	result = check_blocking(task->f, c->blocking);
	return result == ncclSuccess ? result : nccl_group_fail(result);
}

ncclResult_t nccl_group_window(struct ncclWindow_vidmem *window)
{
	if (!grow(&group.windows, group.nwindows, &group.window_room,
		  sizeof(*group.windows))) {
		free(window);
		return group.error;
	}
	group.windows[group.nwindows++] = window;
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

static dicomm_result_t hand_on(void)
{
	dicomm_result_t status = DICOMM_SUCCESS, end;

	dicomm_group_start();
	for (size_t i = 0; i < group.ncalls && status == DICOMM_SUCCESS; i++)
		status = run_one(&group.calls[i]);
	end = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : end;
}

static ncclResult_t run_calls(void)
{
	struct ncclComm *few[FEW], **comms = few;
	dicomm_result_t status;
	ncclResult_t result;
	size_t n = 0;

	if (!group.ncalls)
		return ncclSuccess;
	if (group.ncalls > FEW)
		comms = malloc(group.ncalls * sizeof(*comms));
	if (!comms)
		return nccl_refuse(ncclSystemError,
				   "ncclGroupEnd: out of memory");
	/* Mostly all are of one. */
	for (size_t i = 0; i < group.ncalls; i++)
		if (!n || comms[n - 1] != group.calls[i].comm)
			comms[n++] = group.calls[i].comm;
	if (n > 1)
		n = sort_comms(comms, n);
	result = enter_all(comms, n);
	if (result == ncclSuccess) {
		status = hand_on();
		for (size_t i = 0; i < n; i++)
			nccl_leave(comms[i]);
		result = nccl_from(status);
	}
	if (comms != few)
		free(comms);
	return result;
}

static ncclResult_t run_windows(void)
{
	struct ncclComm **comms;
	ncclResult_t result;
	size_t n = group.nwindows;

	if (!n)
		return ncclSuccess;
	comms = malloc(n * sizeof(*comms));
	if (!comms)
		return nccl_refuse(ncclSystemError,
				   "ncclGroupEnd: out of memory");
	for (size_t i = 0; i < n; i++)
		comms[i] = group.windows[i]->comm;
	n = sort_comms(comms, n);
	result = enter_all(comms, n);
	if (result == ncclSuccess) {
		result = nccl_windows_register(group.windows, group.nwindows);
		group.nwindows = 0;
		for (size_t i = 0; i < n; i++)
			nccl_leave(comms[i]);
	}
	free(comms);
	return result;
}

/* Those that begin something, or those that end it: each may wait for the
 * others. */
static ncclResult_t run_tasks(bool ends)
{
	ncclResult_t result = ncclSuccess, r;
	dicomm_result_t status;
	size_t n = 0;

	if (!group.ntasks)
		return ncclSuccess;
	dicomm_group_start();
	for (size_t i = 0; i < group.ntasks; i++)
		if (nccl_task_is_end(&group.tasks[i]) == ends) {
			nccl_task_start(&group.tasks[i]);
			n++;
		}
	status = dicomm_group_end();
	if (n && status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		result = nccl_failed(status);
	for (size_t i = 0; i < group.ntasks; i++) {
		if (nccl_task_is_end(&group.tasks[i]) != ends)
			continue;
		r = nccl_task_finish(&group.tasks[i], true);
		if (r != ncclSuccess &&
		    (result == ncclSuccess || result == ncclInProgress))
			result = r;
	}
	return result;
}

static void drop_tasks(bool ends)
{
	for (size_t i = 0; i < group.ntasks; i++)
		if (nccl_task_is_end(&group.tasks[i]) == ends)
			nccl_task_drop(&group.tasks[i], group.error);
}

/* Back to none; what was called may be called again in another. */
static void forget(void)
{
	for (size_t i = 0; i < group.ncalls; i++) {
		struct nccl_call *c = &group.calls[i];

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
	for (size_t i = 0; i < group.nwindows; i++)
		free(group.windows[i]);
	free(group.windows);
	if (group.calls != few_calls)
		free(group.calls);
	free(group.tasks);
	memset(&group, 0, sizeof(group));
}

ncclResult_t ncclGroupStart(void)
{
	if (!group.depth++)
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
static ncclResult_t end_group(bool simulated)
{
	ncclResult_t result = group.error, r;

	atomic_fetch_sub(&nccl_groups, 1);
	group.depth = 0;
	if (!group.ncalls && !group.ntasks && !group.nwindows) {
		group.error = ncclSuccess;
		return result;
	}
	if (result != ncclSuccess) {
		drop_tasks(false);
		drop_tasks(true);
		forget();
		return result;
	}
	result = run_tasks(false);
	if (result == ncclSuccess && !simulated)
		result = run_windows();
	if (is_good(result) && !simulated) {
		r = run_calls();
		if (r != ncclSuccess)
			result = r;
	}
	r = run_tasks(true);
	if (r != ncclSuccess && is_good(result))
		result = r;
	forget();
	return result;
}

ncclResult_t ncclGroupEnd(void)
{
	if (!group.depth)
		return nccl_refuse(ncclInvalidUsage,
				   "ncclGroupEnd: this thread has begun no "
				   "group");
	if (group.depth > 1) {
		group.depth--;
		return ncclSuccess;
	}
	return end_group(false);
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
static ncclResult_t estimate_all(float *us)
{
	double longest = 0;

	for (size_t i = 0; i < group.ncalls; i++) {
		double sum = 0, one;

		for (size_t k = 0; k < group.ncalls; k++) {
			ncclResult_t r;

			if (group.calls[k].comm != group.calls[i].comm)
				continue;
			if (k < i)
				break; /* seen with an earlier one */
			r = estimate(&group.calls[k], &one);
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
	ncclResult_t result = ncclSuccess;
	float us = -1;

	if (!group.depth)
		return nccl_refuse(
			ncclInvalidUsage,
			"ncclGroupSimulateEnd: this thread has begun "
			"no group");
	if (group.depth > 1) {
		group.depth--;
		return ncclSuccess;
	}
	if (info &&
	    (info->magic != NCCL_SIM_INFO_MAGIC || info->size < sizeof(*info)))
		result = nccl_refuse(ncclInvalidArgument,
				     "ncclGroupSimulateEnd: info: magic 0x%x, "
				     "size %zu: not initialised by "
				     "NCCL_SIM_INFO_INITIALIZER",
				     info->magic, info->size);
	if (result == ncclSuccess && group.error == ncclSuccess)
		result = estimate_all(&us);
	if (result != ncclSuccess)
		nccl_group_fail(result);
	result = end_group(true);
	if (is_good(result) && info)
		info->estimatedTime = us;
	return result;
}
NCCL_ALIAS(ncclGroupSimulateEnd);
