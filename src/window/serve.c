/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank keeps for one-sided calls, and how it serves its peers. */
#include <stdlib.h>

#include "src/base/log.h"
#include "src/message/channel.h"
#include "src/core/cross_progress.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/device/device.h"
#include "src/window/window.h"

dicomm_result_t windows_know(struct dicomm_comm *comm, int rank)
{
	struct windows *w = comm->windows;
	struct peer *peer;

	if (w->partners[rank].known)
		return DICOMM_SUCCESS;
	TRY(comm_peer(comm, rank, &peer));
	TRY(channel_connect_in(comm, peer, TP_WINDOW));
	w->partners[rank].known = true;
	w->partners[rank].in = (struct message_receive){
		.peer = peer, .class = TP_WINDOW, .signature = WINDOW_BYTES};
	w->known[w->nknown++] = rank;
	return DICOMM_SUCCESS;
}

/* Look whether one more rank has begun to send. Ranks that have not are many,
 * so each poll looks at one of them. This rank knows whether it has itself. */
static void look_for_one(struct dicomm_comm *comm)
{
	struct windows *w = comm->windows;
	int rank = w->look;

	w->look = rank + 1 < comm->ranks ? rank + 1 : 0;
	if (w->partners[rank].known || !comm->ways[rank] ||
	    (rank == comm->rank ? !w->partners[rank].heads.at
				: control_gone(comm->control, rank)))
		return;
	/* It may leave at this moment. Whoever waits for it is told. */
	log_hold();
	windows_know(comm, rank);
	log_release(false);
}

dicomm_result_t windows_look_at_device(struct dicomm_comm *comm, bool *moved)
{
	if (!device_has_memory(comm->dev))
		return DICOMM_SUCCESS;
	return device_progress(comm, moved);
}

static bool serve(struct dicomm_comm *comm)
{
	struct windows *w = comm->windows;
	dicomm_result_t status = DICOMM_SUCCESS;
	bool moved = false;
	int rank = -1;

	if (fault_is(comm))
		return false;
	if (w->nknown < comm->ranks)
		look_for_one(comm);
	status = windows_look_at_device(comm, &moved);
	for (int i = 0; i < w->nknown && status == DICOMM_SUCCESS; i++) {
		rank = w->known[i];
		status = incoming_turn(comm, rank, &moved);
	}
	for (int i = 0; i < w->nouts && status == DICOMM_SUCCESS; i++) {
		rank = w->outs[i];
		if (w->partners[rank].first)
			status = outgoing_turn(comm, rank, &moved);
	}
	if (status != DICOMM_SUCCESS)
		fault_own(comm, status, rank);
	return moved;
}

/* Copies of a device end without a message. What is to be sent may wait for a
 * staging buffer, or for a credit. */
static bool is_idle(const struct dicomm_comm *comm)
{
	const struct windows *w = comm->windows;

	for (int i = 0; i < w->nouts; i++)
		if (w->partners[w->outs[i]].first)
			return false;
	for (int i = 0; i < w->nknown; i++) {
		const struct partner *p = &w->partners[w->known[i]];

		if (p->in.left || p->in.seq || p->lands || p->stage)
			return false;
	}
	return true;
}

static void free_all(struct dicomm_comm *comm)
{
	struct windows *w = comm->windows;

	for (int r = 0; r < comm->ranks; r++) {
		struct partner *p = &w->partners[r];
		struct transfer *t;

		while ((t = p->first)) {
			p->first = t->next;
			if (t->owned)
				free(t);
		}
		free(p->heads.at);
		for (int c = 0; c < DICOMM_SIGNAL_CONTEXTS; c++)
			free(p->signals[c]);
	}
	while (w->first)
		window_free(w->first);
	free(w->known);
	free(w);
	comm->windows = NULL;
	comm->service = NULL;
}

static const struct comm_service service = {
	.poll = serve, .is_idle = is_idle, .free = free_all};

static dicomm_result_t make_windows(struct dicomm_comm *comm)
{
	size_t ranks = (size_t)comm->ranks;
	struct windows *w =
		calloc(1, sizeof(*w) + ranks * sizeof(w->partners[0]));

	if (w)
		w->known = calloc(2 * ranks, sizeof(*w->known));
	if (!w || !w->known) {
		free(w);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "windows: no memory for %d ranks", comm->ranks);
	}
	w->outs = w->known + ranks;
	comm->windows = w;
	comm->service = &service;
	return DICOMM_SUCCESS;
}

dicomm_result_t windows_begin(struct dicomm_comm *comm)
{
	if (!comm->windows)
		TRY(make_windows(comm));
	else if (atomic_load(&comm->takes_signals))
		return DICOMM_SUCCESS;
	TRY(cross_progress_serve(comm));
	atomic_store(&comm->takes_signals, true);
	return DICOMM_SUCCESS;
}
