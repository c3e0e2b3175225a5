/* SPDX-License-Identifier: BSD-3-Clause */
/* The windows of a communicator, as a list. */
#include "src/window/window.h"

#include <stdlib.h>

#include "src/base/handle.h"
#include "src/core/memory.h"

static struct handle_pool pool = HANDLE_POOL(struct dicomm_window);

struct dicomm_window *window_make(struct dicomm_comm *comm)
{
	struct dicomm_window *w = handle_alloc(&pool);

	if (!w)
		return NULL;
	w->sizes = calloc((size_t)comm->ranks, sizeof(*w->sizes));
	if (!w->sizes) {
		handle_free(&pool, w);
		return NULL;
	}
	w->magic = WINDOW_MAGIC;
	w->comm = comm;
	return w;
}

void window_add(struct dicomm_window *w)
{
	struct windows *all = w->comm->windows;

	w->id = ++all->registered;
	w->next = all->first;
	all->first = w;
}

struct dicomm_window *window_find(const struct dicomm_comm *comm, uint32_t id)
{
	struct dicomm_window *w = comm->windows->first;

	while (w && w->id != id)
		w = w->next;
	return w;
}

void window_free(struct dicomm_window *w)
{
	struct windows *all = w->comm->windows;
	struct dicomm_window **at = all ? &all->first : NULL;

	while (at && *at && *at != w)
		at = &(*at)->next;
	if (at && *at)
		*at = w->next;
	comm_mem_deregister(w->comm, &w->handles);
	/* The device of a communicator that ends is closed before its windows
	 * are. */
	if (w->buffer && w->comm->dev)
		user_buffer_remove(w->comm, w->buffer);
	free(w->sizes);
	handle_free(&pool, w);
}
