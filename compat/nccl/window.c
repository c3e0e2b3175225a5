/* SPDX-License-Identifier: BSD-3-Clause */
#include "compat/nccl/window.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclWindow_vidmem *windows;

/* Where in the list it is; needs the lock. */
static struct ncclWindow_vidmem **place_of(const void *win,
					   const struct ncclComm *comm)
{
	struct ncclWindow_vidmem **at = &windows;

	while (*at && (*at != win || (*at)->comm != comm))
		at = &(*at)->next;
	return at;
}

static ncclResult_t no_window(const char *f, const void *win)
{
	return nccl_refuse(ncclInvalidArgument,
			   "%s: win %p: no window of this communicator, or it "
			   "was deregistered",
			   f, win);
}

dicomm_window_t nccl_window_find(const char *f, const struct ncclComm *comm,
				 const void *win, ncclResult_t *why)
{
	const struct ncclWindow_vidmem *w;
	dicomm_window_t found = NULL;
	bool there;

	pthread_mutex_lock(&lock);
	w = *place_of(win, comm);
	there = w != NULL;
	if (w)
		found = w->win;
	pthread_mutex_unlock(&lock);
	if (!there)
		*why = no_window(f, win);
	else if (!found)
		*why = nccl_refuse(
			ncclInvalidUsage,
			"%s: win %p: bytes between a GPU and a host rank of "
			"this communicator would be staged, and "
			"DICOMM_STAGING is never",
			f, win);
	return found;
}

void nccl_windows_forget(struct ncclComm *comm)
{
	struct ncclWindow_vidmem **at = &windows, *w;

	pthread_mutex_lock(&lock);
	while ((w = *at)) {
		if (w->comm != comm) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (w->handle)
			dicomm_comm_deregister(comm->comm, w->handle);
		free(w);
	}
	pthread_mutex_unlock(&lock);
}

static void hand_out(struct ncclWindow_vidmem *w)
{
	pthread_mutex_lock(&lock);
	w->next = windows;
	windows = w;
	pthread_mutex_unlock(&lock);
	*w->out = w;
	w->out = NULL;
}

/* All ranks find the same, so all of them have a window or none. Programs also
 * register windows to make their collectives fast. */
static dicomm_result_t settle(struct ncclWindow_vidmem *w,
			      dicomm_result_t status)
{
	dicomm_result_t buffer = DICOMM_SUCCESS;

	if (status == DICOMM_ERR_UNSUPPORTED)
		buffer = dicomm_comm_register(w->comm->comm, w->buff, w->size,
					      &w->handle);
	if (!w->win && status == DICOMM_ERR_UNSUPPORTED)
		status = buffer;
	if (w->win || (w->handle && status == DICOMM_SUCCESS)) {
		hand_out(w);
		return DICOMM_SUCCESS;
	}
	free(w);
	return status != DICOMM_SUCCESS ? status : DICOMM_ERR_INTERNAL;
}

ncclResult_t nccl_windows_register(struct ncclWindow_vidmem **all, size_t n)
{
	dicomm_result_t status = DICOMM_SUCCESS, one;
	ncclResult_t result = ncclSuccess;

	dicomm_group_start();
	for (size_t i = 0; i < n && status == DICOMM_SUCCESS; i++)
		status = dicomm_comm_window_register(
			all[i]->comm->comm, all[i]->buff, all[i]->size,
			&all[i]->win, all[i]->flags | DICOMM_WINDOW_ENDS_ALONE);
	one = dicomm_group_end();
	if (status == DICOMM_SUCCESS)
		status = one;
	for (size_t i = 0; i < n; i++) {
		one = settle(all[i], status);
		if (one != DICOMM_SUCCESS && result == ncclSuccess)
			result = nccl_from(one);
	}
	return result;
}

static ncclResult_t deregister(const struct ncclWindow_vidmem *w)
{
	dicomm_comm_t comm = w->comm->comm;

	dicomm_result_t status = DICOMM_SUCCESS, one;

	if (w->win)
		status = dicomm_comm_window_deregister(comm, w->win);
	if (w->handle) {
		one = dicomm_comm_deregister(comm, w->handle);
		if (status == DICOMM_SUCCESS)
			status = one;
	}
	return nccl_from(status);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	struct ncclWindow_vidmem **at, *w;
	ncclResult_t result = ncclSuccess;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	pthread_mutex_lock(&lock);
	at = place_of(win, comm);
	w = *at;
	if (w)
		*at = w->next;
	pthread_mutex_unlock(&lock);
	if (w)
		result = deregister(w);
	nccl_leave(comm);
	free(w);
	/* What could not be registered is NULL in NCCL. */
	return win && !w ? no_window(__func__, win) : result;
}
NCCL_ALIAS(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr)
{
	const struct ncclWindow_vidmem *w;

	if (!ptr)
		return nccl_refuse(ncclInvalidArgument, "%s: ptr is NULL",
				   __func__);
	*ptr = NULL;
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	pthread_mutex_lock(&lock);
	w = *place_of(win, comm);
	if (w)
		*ptr = w->buff;
	pthread_mutex_unlock(&lock);
	nccl_leave_shared(comm);
	return w ? ncclSuccess : no_window(__func__, win);
}
NCCL_ALIAS(ncclWinGetUserPtr);
