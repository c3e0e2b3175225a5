/* SPDX-License-Identifier: BSD-3-Clause */
/* Host streams, which are queues of calls, and requests for the end of these.
 */
#include <pthread.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/fork.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/stream/batch.h"
#include "src/stream/driver.h"
#include "src/stream/request.h"
#include "src/stream/submit.h"

#define STREAM_MAGIC UINT64_C(0xd1c05712ea3d0001)

static struct handle_pool pool = HANDLE_POOL(struct host_stream);

bool stream_valid(dicomm_stream_t stream)
{
	const struct host_stream *st = stream;

	return st && st->magic == STREAM_MAGIC &&
	       st->generation == atomic_load_explicit(&comm_generation,
						      memory_order_relaxed);
}

dicomm_result_t stream_refuse(dicomm_stream_t stream, const char *function)
{
	const struct host_stream *st = stream;

	if (st && st->magic == STREAM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: stream %p belongs to the parent of this "
			    "process",
			    function, stream);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: stream %p is not a host stream", function, stream);
}

dicomm_result_t dicomm_host_stream_create(dicomm_stream_t *stream)
{
	CANCEL_HELD();
	struct host_stream *st;

	if (!stream)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host_stream_create: stream is NULL");
	fork_add(FORK_STREAMS, driver_forget);
	st = handle_alloc(&pool);
	if (!st)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "host_stream_create: out of memory");
	st->magic = STREAM_MAGIC;
	st->generation = atomic_load(&comm_generation);
	*stream = st;
	return DICOMM_SUCCESS;
}

/* With stream_lock held: complete the request when what was queued last has
 * ended. Returns false if nothing is queued. */
static bool attach(struct host_stream *st, struct dicomm_request *r)
{
	if (!st->pending)
		return false;
	r->next = st->last->requests;
	st->last->requests = r;
	return true;
}

void stream_attach(dicomm_stream_t stream, struct dicomm_request *r)
{
	struct host_stream *st = stream;
	dicomm_result_t status;
	char text[sizeof(st->last_text)] = "";
	bool attached;

	pthread_mutex_lock(&stream_lock);
	attached = attach(st, r);
	status = st->last_status;
	if (status != DICOMM_SUCCESS)
		memcpy(text, st->last_text, sizeof(text));
	pthread_mutex_unlock(&stream_lock);
	if (!attached)
		callbacks_complete(r, status, text);
}

static dicomm_result_t wait_for_all(struct host_stream *st)
{
	struct dicomm_request done;
	dicomm_result_t status;

	request_init(&done);
	pthread_mutex_lock(&stream_lock);
	if (attach(st, &done))
		driver_await(&done, 0);
	status = st->status;
	if (status != DICOMM_SUCCESS)
		log_set_last_error(st->text);
	st->status = DICOMM_SUCCESS;
	pthread_mutex_unlock(&stream_lock);
	return status;
}

dicomm_result_t dicomm_host_stream_synchronize(dicomm_stream_t stream)
{
	CANCEL_HELD();

	if (!stream_valid(stream))
		return stream_refuse(stream, "host_stream_synchronize");
	return wait_for_all(stream);
}

dicomm_result_t dicomm_host_stream_destroy(dicomm_stream_t stream)
{
	CANCEL_HELD();
	struct host_stream *st = stream;
	dicomm_result_t status;

	if (!stream)
		return DICOMM_SUCCESS;
	if (!stream_valid(stream))
		return stream_refuse(stream, "host_stream_destroy");
	TRY(group_check_end(st, "host_stream_destroy"));
	status = wait_for_all(st);
	handle_free(&pool, st);
	return status;
}

/* ---- requests ---- */

static dicomm_result_t result_of(const struct dicomm_request *r)
{
	if (r->status != DICOMM_SUCCESS)
		log_set_last_error(r->text);
	return r->status;
}

dicomm_result_t dicomm_host_stream_request(dicomm_stream_t stream,
					   dicomm_request_t *request)
{
	CANCEL_HELD();
	const char *f = "host_stream_request";
	struct dicomm_request *r;

	if (!request)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: request is NULL",
			    f);
	*request = NULL;
	if (!stream_valid(stream))
		return stream_refuse(stream, f);
	if (group_has(stream))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: the operations on stream %p are in a group "
			    "that has not ended",
			    f, stream);
	r = request_new();
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", f);
	stream_attach(stream, r);
	*request = r;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_request_query(dicomm_request_t request)
{
	CANCEL_HELD();

	TRY(request_check(request, "request_query"));
	if (!request_is_done(request))
		driver_poll();
	return request_is_done(request) ? result_of(request)
					: DICOMM_IN_PROGRESS;
}

dicomm_result_t dicomm_request_wait(dicomm_request_t request, int timeout_ms)
{
	CANCEL_HELD();

	TRY(request_check(request, "request_wait"));
	if (timeout_ms < 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "request_wait: timeout_ms %d: negative",
			    timeout_ms);
	if (!request_is_done(request)) {
		uint64_t ns = (uint64_t)timeout_ms * 1000000u;

		pthread_mutex_lock(&stream_lock);
		driver_await(request, ns ? clock_ns() + ns : 0);
		pthread_mutex_unlock(&stream_lock);
	}
	return request_is_done(request) ? result_of(request)
					: DICOMM_IN_PROGRESS;
}

dicomm_result_t dicomm_request_call(dicomm_request_t request,
				    dicomm_request_fn_t fn, void *ctx)
{
	CANCEL_HELD();

	TRY(request_check(request, "request_call"));
	if (!fn)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "request_call: fn is NULL");
	TRY(callbacks_set(request, fn, ctx));
	if (!request_is_done(request))
		driver_wake();
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_request_free(dicomm_request_t request)
{
	CANCEL_HELD();

	if (!request)
		return DICOMM_SUCCESS;
	TRY(request_check(request, "request_free"));
	request->magic = 0;
	request_put(request);
	return DICOMM_SUCCESS;
}
