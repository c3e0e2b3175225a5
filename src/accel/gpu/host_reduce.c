/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/host_reduce.h"
#include "src/accel/gpu/kernel.h"
#include "src/accel/reduce/host_reduce.h"
#include "src/base/log.h"
#include "src/base/type.h"

/* Pinned memory of one stream, HOST_REDUCE_BYTES long. It is never freed:
 * queued work may still use it after the stream is closed. A later stream uses
 * it again. */
struct gpu_pinned {
	unsigned char *at;
	_Atomic bool used;
	struct gpu_pinned *next;
};

/* Take an unused one or make one. The caller holds the lock and has entered
 * the device. */
static dicomm_result_t pinned_get(struct gpu_driver *gpu, int index,
				  struct gpu_pinned **out)
{
	struct gpu_pinned *p = gpu->pinned;
	void *at = NULL;
	int error;

	while (p && atomic_load(&p->used))
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return gpu_device_no_memory(gpu, index);
		error = gpu->api.host_alloc(&at, HOST_REDUCE_BYTES,
					    gpu->host_flags);
		if (error) {
			free(p);
			return gpu_device_failed(gpu, error, index,
						 "pinned memory");
		}
		p->at = at;
		p->next = gpu->pinned;
		gpu->pinned = p;
	}
	atomic_store(&p->used, true);
	*out = p;
	return DICOMM_SUCCESS;
}

/* Runs as a host function, after the last work of the stream that used it. */
static void pinned_put(void *ctx)
{
	struct gpu_pinned *p = ctx;

	atomic_store(&p->used, false);
}

static dicomm_result_t host_reduce_open(struct accel_stream *s)
{
	struct gpu_driver *gpu = s->gpu;

	if (s->pinned)
		return DICOMM_SUCCESS;
	if (!gpu->devices[s->index].waits) {
		log_set_last_error("nor can the host reduce for it: the driver "
				   "is too old for streams to wait for memory");
		return DICOMM_ERR_UNSUPPORTED;
	}
	s->pinned_put = pinned_put;
	return pinned_get(gpu, s->index, &s->pinned);
}

dicomm_result_t gpu_host_reduce_prepare(struct accel_stream *s,
					dicomm_datatype_t type)
{
	struct gpu_driver *gpu = s->gpu;
	dicomm_result_t status;

	TRY(gpu_device_enter(gpu, s->index));
	pthread_mutex_lock(&gpu->lock);
	status = host_reduce_open(s);
	pthread_mutex_unlock(&gpu->lock);
	gpu_device_leave(gpu);
	if (status == DICOMM_SUCCESS)
		s->host_reduced |= UINT64_C(1) << type;
	return status;
}

static bool is_proxied(const struct accel_stream *s, dicomm_datatype_t type)
{
	return type_valid(type) && s->host_reduced >> type & 1;
}

/* ---- operations ---- */

static dicomm_result_t launch_none(const struct accel_stream *s,
				   const char *what)
{
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s:%d: no kernel for %s",
		    s->gpu->kind, s->index, what);
}

static dicomm_result_t launch_start(struct accel_stream *s, struct launch *l)
{
	return gpu_kernel_start(s, l);
}

#include "src/accel/launch/work.h"

/* Runs as a host function, in a thread of the driver. */
static void piece_run(void *ctx)
{
	struct host_reduce *p = ctx;

	host_reduce_run(p);
	free(p);
}

static dicomm_result_t piece_queue(struct accel_stream *s,
				   const struct host_reduce *piece)
{
	struct gpu_driver *gpu = s->gpu;
	struct host_reduce *p = malloc(sizeof(*p));
	dicomm_result_t status;
	int error;

	if (!p)
		return gpu_device_no_memory(gpu, s->index);
	*p = *piece;
	status = gpu_device_enter(gpu, s->index);
	if (status == DICOMM_SUCCESS) {
		error = gpu->api.host_function(s->handle, piece_run, p);
		status = gpu_device_done(gpu, error, s->index,
					 "a reduction by the host");
	}
	if (status != DICOMM_SUCCESS)
		free(p);
	return status;
}

/* Queue an operation piece by piece: copy the operands of a piece to pinned
 * memory, reduce there, copy the result to dst. p describes the operation; p.n
 * is its number of elements. */
static dicomm_result_t host_reduce_queue(struct accel_stream *s,
					 struct host_reduce p, void *dst,
					 const void *const *src)
{
	size_t bytes = type_bytes(p.type), total = p.n, most;
	/* Places of pinned memory in a piece. The scalar takes one, too. */
	int places = p.kind == HOST_REDUCE_SCALE ? 2 : p.nsrc;

	if (!host_reduce_valid(&p))
		return launch_none(s, "that on the host");
	most = host_reduce_piece(p.type, places, &p.pitch);
	if (!most)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: the host reduces no %d operands",
			    s->gpu->kind, s->index, p.nsrc);
	p.at = s->pinned->at;
	for (size_t at = 0; at < total; at += most) {
		p.n = total - at < most ? total - at : most;
		for (int i = 0; i < p.nsrc; i++)
			TRY(gpu_stream_copy(s, p.at + (size_t)i * p.pitch,
					    (const char *)src[i] + at * bytes,
					    p.n * bytes));
		if (p.scalar_at)
			TRY(gpu_stream_copy(s, p.at + p.pitch, p.scalar_at,
					    bytes));
		TRY(piece_queue(s, &p));
		TRY(gpu_stream_copy(s, (char *)dst + at * bytes, p.at,
				    p.n * bytes));
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_host_reduce_reduce(struct accel_stream *s,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, void *dst,
				       const void *a, const void *b, size_t n)
{
	const struct host_reduce p = {.kind = HOST_REDUCE_REDUCE,
				      .type = type,
				      .op = op,
				      .nsrc = 2,
				      .n = n};
	const void *const src[2] = {a, b};

	return is_proxied(s, type) ? host_reduce_queue(s, p, dst, src)
				   : work_reduce(s, type, op, dst, a, b, n);
}

dicomm_result_t gpu_host_reduce_fold(struct accel_stream *s,
				     dicomm_datatype_t type, dicomm_redop_t op,
				     void *dst, const void *const *src,
				     int nsrc, size_t n)
{
	const struct host_reduce p = {.kind = HOST_REDUCE_FOLD,
				      .type = type,
				      .op = op,
				      .nsrc = nsrc,
				      .n = n};

	return is_proxied(s, type) ? host_reduce_queue(s, p, dst, src)
				   : work_fold(s, type, op, dst, src, nsrc, n);
}

dicomm_result_t gpu_host_reduce_scale(struct accel_stream *s,
				      dicomm_datatype_t type, void *dst,
				      const void *a, const void *scalar_at,
				      uint64_t scalar, size_t n)
{
	const struct host_reduce p = {.kind = HOST_REDUCE_SCALE,
				      .type = type,
				      .nsrc = 1,
				      .scalar = scalar,
				      .scalar_at = scalar_at,
				      .n = n};

	return is_proxied(s, type)
		       ? host_reduce_queue(s, p, dst, &a)
		       : work_scale(s, type, dst, a, scalar_at, scalar, n);
}

dicomm_result_t gpu_host_reduce_divide(struct accel_stream *s,
				       dicomm_datatype_t type, void *dst,
				       const void *a, long divisor, size_t n)
{
	const struct host_reduce p = {.kind = HOST_REDUCE_DIVIDE,
				      .type = type,
				      .nsrc = 1,
				      .divisor = divisor,
				      .n = n};

	return is_proxied(s, type) ? host_reduce_queue(s, p, dst, &a)
				   : work_divide(s, type, dst, a, divisor, n);
}
