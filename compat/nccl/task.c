/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators begin and end. All are made without blocking, and this layer
 * waits where the program would: so their handles are there from the start, and
 * another thread can abort what does not come about.
 */
#include "compat/nccl/task.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compat/nccl/call.h"

/* For other threads to leave a communicator that has failed: they hear of that
 * at once. */
#define DESTROY_MS 10000
/* For other threads to leave one that is destroyed */
#define IN_USE_MS 5000

static _Atomic bool islands_off;

/* No function of NCCL's: it tells this library from the vendor's, and is called
 * where it stands for that inside an island of libdicomm. */
void ncclDicommIslandsOff(void)
{
	atomic_store(&islands_off, true);
}
NCCL_ALIAS(ncclDicommIslandsOff);

static void set_config(dicomm_config_t *config, const struct nccl_task *t)
{
	const char *bound = getenv("DICOMM_BOOTSTRAP_TIMEOUT");

	*config = (dicomm_config_t)DICOMM_CONFIG_INITIALIZER;
	config->blocking = 0;
	/* As in NCCL, whoever comes late is waited for. */
	if (!bound || !*bound)
		config->bootstrap_timeout_ms = INT32_MAX;
	config->device = t->device[0] ? t->device : NULL;
	config->name = t->options.name[0] ? t->options.name : NULL;
	config->island = atomic_load(&islands_off) ? "off" : NULL;
}

static dicomm_result_t init(struct nccl_task *t)
{
	dicomm_config_t config;

	set_config(&config, t);
	return dicomm_comm_init_rank_config(&t->out, t->nranks, t->id, t->rank,
					    &config);
}

/* Where the communicator has no options of its own, it has the old one's. */
static dicomm_result_t split(struct nccl_task *t)
{
	dicomm_config_t config;

	set_config(&config, t);
	return dicomm_comm_split(t->comm->comm, t->color, t->key, &t->out,
				 t->options.given ? &config : NULL);
}

static dicomm_result_t shrink(struct nccl_task *t)
{
	dicomm_config_t config;

	set_config(&config, t);
	return dicomm_comm_shrink(t->comm->comm, t->exclude, t->nexclude,
				  &t->out, t->options.given ? &config : NULL);
}

/* By an old rank, or by one that joins. */
static dicomm_result_t grow(struct nccl_task *t)
{
	dicomm_config_t config;

	set_config(&config, t);
	return dicomm_comm_grow(t->comm ? t->comm->comm : NULL, t->nranks,
				t->has_id ? &t->id : NULL, t->rank, &t->out,
				t->comm && !t->options.given ? NULL : &config);
}

static dicomm_result_t gone(struct nccl_task *t)
{
	nccl_handle_refuse(t->f, t->comm);
	t->said = true;
	return DICOMM_ERR_INVALID_USAGE;
}

/* With the old communicator to itself; its states are those it may be in. */
static dicomm_result_t with_parent(struct nccl_task *t, unsigned states,
				   dicomm_result_t (*make)(struct nccl_task *t))
{
	dicomm_result_t status;

	if (!nccl_enter_any(t->comm, states))
		return gone(t);
	status = make(t);
	nccl_leave(t->comm);
	return status;
}

static dicomm_result_t finalize(struct nccl_task *t)
{
	dicomm_result_t status;

	if (!nccl_enter(t->comm))
		return gone(t);
	status = dicomm_comm_finalize(t->comm->comm);
	t->comm->finalized =
		status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS;
	nccl_leave(t->comm);
	return status;
}

static void nap(unsigned *us)
{
	struct timespec t = {.tv_nsec = (long)*us * 1000};

	nanosleep(&t, NULL);
	if (*us < 500)
		*us += *us / 2;
}

/* Buffers that are still registered may be in use until it is finalized. */
static void strike_all(struct ncclComm *c)
{
	dicomm_result_t error = DICOMM_IN_PROGRESS;
	unsigned us = 20;

	if (!nccl_memory_is_left(c))
		return;
	if (dicomm_comm_finalize(c->comm) == DICOMM_IN_PROGRESS)
		while (dicomm_comm_get_async_error(c->comm, &error) ==
			       DICOMM_SUCCESS &&
		       error == DICOMM_IN_PROGRESS)
			nap(&us);
	nccl_memory_forget(c);
}

/* A program that destroys what another thread still uses is told so. */
static dicomm_result_t destroy(struct nccl_task *t)
{
	if (!nccl_turn(t->comm, NCCL_THERE, NCCL_DYING))
		return gone(t);
	if (!nccl_handle_drain(t->comm, IN_USE_MS, true, 0)) {
		nccl_turn(t->comm, NCCL_IN(NCCL_DYING), NCCL_LIVE);
		nccl_refuse(ncclInvalidUsage,
			    "%s: another thread is in a call on comm %p; "
			    "ncclCommAbort() ends that",
			    t->f, (void *)t->comm);
		t->said = true;
		return DICOMM_ERR_INVALID_USAGE;
	}
	strike_all(t->comm);
	return dicomm_comm_destroy(t->comm->comm);
}

/* Neither is freed by an abort before finish() lets go of it. */
static void hold(struct ncclComm *c)
{
	if (c)
		atomic_fetch_add(&c->readers, 1);
}

static void let_go(struct ncclComm *c)
{
	if (c)
		atomic_fetch_sub(&c->readers, 1);
}

void nccl_task_start(struct nccl_task *t)
{
	t->held = t->kind == NCCL_TASK_DESTROY ? NULL : t->comm;
	t->held_made = t->made;
	hold(t->held);
	hold(t->held_made);
	if (t->made && !nccl_turn(t->made, NCCL_IN(NCCL_PENDING), NCCL_LIVE) &&
	    atomic_load(&t->made->state) != NCCL_LIVE) {
		t->made = NULL; /* aborted before it began */
		t->status = DICOMM_ERR_ABORTED;
		return;
	}
	switch (t->kind) {
	case NCCL_TASK_INIT:
		t->status = init(t);
		break;
	case NCCL_TASK_SPLIT:
		t->status = with_parent(t, NCCL_IN(NCCL_LIVE), split);
		break;
	case NCCL_TASK_SHRINK:
		t->status = with_parent(
			t, NCCL_IN(NCCL_LIVE) | NCCL_IN(NCCL_REVOKED), shrink);
		break;
	case NCCL_TASK_GROW:
		t->status = t->comm ? with_parent(t, NCCL_IN(NCCL_LIVE), grow)
				    : grow(t);
		break;
	case NCCL_TASK_FINALIZE:
		t->status = finalize(t);
		break;
	case NCCL_TASK_DESTROY:
		t->status = destroy(t);
		break;
	}
}

/* Bounded by the library, by DICOMM_BOOTSTRAP_TIMEOUT where that is set, and
 * DICOMM_TIMEOUT_MS; ncclCommAbort() ends it. */
static dicomm_result_t wait_for(struct ncclComm *c)
{
	dicomm_result_t status = DICOMM_ERR_ABORTED, error;
	unsigned us = 20;

	while (nccl_enter_shared(c, NCCL_THERE)) {
		status = dicomm_comm_get_async_error(c->comm, &error);
		if (status == DICOMM_SUCCESS)
			status = error;
		nccl_leave_shared(c);
		if (status != DICOMM_IN_PROGRESS)
			break;
		nap(&us);
		status = DICOMM_ERR_ABORTED;
	}
	return status;
}

/* What broke it, by the library's words. */
static ncclResult_t tell(struct ncclComm *c, dicomm_result_t status)
{
	ncclResult_t result;

	if (!nccl_enter_shared(c, NCCL_THERE))
		return nccl_refuse(ncclInvalidUsage,
				   "comm %p was aborted meanwhile", (void *)c);
	result = nccl_failed_elsewhere(status, dicomm_get_last_error(c->comm));
	nccl_leave_shared(c);
	return result;
}

/* Of what could not be made. In a group its handle is the program's. */
static void end(struct ncclComm *c, bool in_group, ncclResult_t why)
{
	if (!nccl_turn(c, NCCL_THERE | NCCL_IN(NCCL_PENDING), NCCL_DYING))
		return;
	nccl_handle_drain(c, DESTROY_MS, true, 1);
	nccl_memory_forget(c);
	dicomm_comm_destroy(c->comm);
	nccl_redop_forget(c);
	if (in_group)
		nccl_handle_fail(c, why);
	else
		nccl_handle_free(c);
}

static ncclResult_t finish_made(struct nccl_task *t, bool in_group)
{
	ncclResult_t result;

	/* In a group, success means that it has been begun. */
	if (t->status == DICOMM_SUCCESS && in_group && t->out)
		t->status = DICOMM_IN_PROGRESS;
	if (t->status == DICOMM_IN_PROGRESS) {
		if (!t->made->blocking) {
			if (t->comm)
				nccl_child_add(t->comm, t->made);
			return ncclInProgress;
		}
		t->status = wait_for(t->made);
		if (t->status != DICOMM_SUCCESS) {
			result = tell(t->made, t->status);
			if (!in_group)
				end(t->made, false, result);
			return result;
		}
	}
	if (t->status == DICOMM_SUCCESS)
		return ncclSuccess;
	result = t->said ? nccl_result(t->status) : nccl_failed(t->status);
	end(t->made, in_group, result);
	return result;
}

static ncclResult_t finish_end(struct nccl_task *t)
{
	struct ncclComm *c = t->comm;

	if (t->kind == NCCL_TASK_DESTROY) {
		if (t->status == DICOMM_SUCCESS) {
			nccl_redop_forget(c);
			nccl_handle_free(c);
			return ncclSuccess;
		}
		if (t->said)
			return nccl_result(t->status);
		nccl_turn(c, NCCL_IN(NCCL_DYING), NCCL_LIVE);
		return nccl_failed(t->status);
	}
	if (t->status == DICOMM_IN_PROGRESS) {
		if (!c->blocking)
			return ncclInProgress;
		t->status = wait_for(c);
		if (t->status != DICOMM_SUCCESS)
			return tell(c, t->status);
	}
	return t->said ? nccl_result(t->status) : nccl_from(t->status);
}

static ncclResult_t finish(struct nccl_task *t, bool in_group)
{
	if (nccl_task_is_end(t))
		return finish_end(t);
	if (t->made)
		return finish_made(t, in_group);
	if (t->status == DICOMM_ERR_ABORTED)
		return nccl_refuse(ncclInvalidUsage,
				   "%s: the communicator was aborted before "
				   "it was made",
				   t->f);
	return t->said ? nccl_result(t->status) : nccl_from(t->status);
}

ncclResult_t nccl_task_finish(struct nccl_task *t, bool in_group)
{
	ncclResult_t result;

	/* Only now, for in a group of the library a thread of that writes it.
	 */
	if (t->made)
		atomic_store(&t->made->comm, t->out);
	result = finish(t, in_group);
	free(t->exclude);
	t->exclude = NULL;
	let_go(t->held);
	let_go(t->held_made);
	return result;
}

void nccl_task_drop(struct nccl_task *t, ncclResult_t why)
{
	free(t->exclude);
	t->exclude = NULL;
	if (t->kind == NCCL_TASK_FINALIZE)
		t->comm->finalized = false;
	if (t->made && nccl_turn(t->made, NCCL_IN(NCCL_PENDING), NCCL_DYING))
		nccl_handle_fail(t->made, why);
}
