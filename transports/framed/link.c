/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a rank is there: its link is sound, has broken, or was closed. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "src/base/log.h"
#include "transports/framed/framed.h"

#define CLOSED "it has closed its side"

void framed_link_fail(struct framed_link *link, dicomm_result_t status,
		      const char *format, ...)
{
	const struct framed_ops *ops = framed_of(link->dev)->ops;
	va_list args;

	if (!atomic_load_explicit(&link->status, memory_order_relaxed)) {
		va_start(args, format);
		vsnprintf(link->cause, sizeof(link->cause), format, args);
		va_end(args);
		atomic_store_explicit(&link->status, status,
				      memory_order_release);
	}
	if (ops->drop)
		ops->drop(link);
}

dicomm_result_t framed_link_status(struct framed_link *link)
{
	dicomm_result_t status = (dicomm_result_t)atomic_load_explicit(
		&link->status, memory_order_acquire);
	char text[sizeof(link->cause) + 32];

	if (!status && !link->peer_closed)
		return DICOMM_SUCCESS;
	if (link->peer_closed)
		status = DICOMM_ERR_REMOTE;
	snprintf(text, sizeof(text), "%s: rank %" PRIu32 ": %s",
		 framed_of(link->dev)->ops->name, link->rank,
		 link->peer_closed ? CLOSED : link->cause);
	if (link->reported) {
		log_set_last_error(text);
		return status;
	}
	link->reported = true;
	return FAIL(status, "%s", text);
}

bool framed_link_is_open(const struct framed *f, uint32_t rank, char *why,
			 size_t len)
{
	const struct framed_link *link;

	if (rank >= (uint32_t)f->config.ranks)
		return true;
	link = framed_link_of(f, rank);
	if (atomic_load(&link->peer_closed)) {
		snprintf(why, len, CLOSED);
		return false;
	}
	if (atomic_load(&link->status)) {
		snprintf(why, len, "the connection to it has broken");
		return false;
	}
	return true;
}

static dicomm_result_t broken(struct framed_link *link, int *peer)
{
	if (!atomic_load_explicit(&link->status, memory_order_acquire) ||
	    link->peer_closed)
		return DICOMM_SUCCESS;
	/* The close of a peer may arrive a moment later than its end: report
	 * the error at the second look. */
	if (!link->noticed) {
		link->noticed = true;
		return DICOMM_SUCCESS;
	}
	*peer = (int)link->rank;
	return framed_link_status(link);
}

dicomm_result_t framed_link_broken(struct tp_device *dev, int *peer)
{
	struct framed *f = framed_of(dev);
	dicomm_result_t status = DICOMM_SUCCESS;

	if (framed_is_aborted(f) || !framed_try_lock(f))
		return DICOMM_SUCCESS;
	if (f->ops->watch)
		f->ops->watch(dev);
	for (uint32_t r = 0;
	     r < (uint32_t)f->config.ranks && status == DICOMM_SUCCESS; r++)
		status = broken(framed_link_of(f, r), peer);
	framed_unlock(f);
	return status;
}
