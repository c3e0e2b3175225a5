/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues calls, and has them driven. */
#include "src/stream/submit.h"

#include <pthread.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/data_path.h"
#include "src/stream/batch.h"
#include "src/stream/driver.h"
#include "src/stream/request.h"

dicomm_result_t stream_submit(const struct item *items, size_t n,
			      struct stream_fence *fences,
			      const struct local_work *before, bool wait)
{
	struct batch lost = {.fences = fences}, *w;
	struct dicomm_request done;
	dicomm_result_t status;

	for (size_t i = 0; i < n; i++)
		data_path_claim(&items[i].comm->path);
	pthread_mutex_lock(&stream_lock);
	w = batch_make(items, n);
	if (!w) {
		pthread_mutex_unlock(&stream_lock);
		batch_release_fences(&lost);
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "stream: no memory to queue %zu calls", n);
	}
	if (wait) {
		request_init(&done);
		w->requests = &done;
	}
	w->fences = fences;
	w->reached = !fences;
	w->before_all = before;
	status = driver_start();
	if (status != DICOMM_SUCCESS) {
		batch_free(w);
		pthread_mutex_unlock(&stream_lock);
		batch_release_fences(&lost);
		return status;
	}
	for (size_t i = 0; i < n; i++)
		data_path_queue(&items[i].comm->path);
	for (size_t i = 0; i < w->nplaces; i++) {
		w->places[i].stream->pending++;
		w->places[i].stream->last = w;
	}
	driver_add(w, wait);
	/* Each operation is bounded, so this wait is bounded. */
	if (wait)
		driver_await(&done, 0);
	pthread_mutex_unlock(&stream_lock);
	if (!wait)
		return DICOMM_SUCCESS;
	if (done.status != DICOMM_SUCCESS)
		log_set_last_error(done.text);
	return done.status;
}
