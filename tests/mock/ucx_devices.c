/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mock/ucx_devices.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/mock/peek.h"
#include "transports/ucx/load.h"

struct region {
	ucp_mem_h handle;
	uintptr_t at, pages;
	size_t bytes;
	ucs_memory_type_t type;
	struct region *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static struct ucx_api real;
static bool can_map;

static ucs_status_t query(ucp_context_h context, ucp_context_attr_t *attr)
{
	ucs_status_t status = real.ucp_context_query(context, attr);

	if (attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
		attr->memory_types |=
			1u << UCS_MEMORY_TYPE_CUDA | 1u << UCS_MEMORY_TYPE_ROCM;
	return status;
}

static bool is_of(const void *at, ucs_memory_type_t type)
{
	enum peek_kind kind;

	return peek_device(at, &kind) &&
	       type == (kind == PEEK_CUDA ? UCS_MEMORY_TYPE_CUDA
					  : UCS_MEMORY_TYPE_ROCM);
}

static ucs_status_t map(ucp_context_h context,
			const ucp_mem_map_params_t *params, ucp_mem_h *handle)
{
	ucp_mem_map_params_t host = *params;
	const char *at = params->address;
	struct region *r;
	ucs_status_t status;

	if (!can_map || !is_of(at, params->memory_type) ||
	    !is_of(at + params->length - 1, params->memory_type))
		return UCS_ERR_UNSUPPORTED;
	r = calloc(1, sizeof(*r));
	if (!r)
		return UCS_ERR_NO_MEMORY;
	host.address = peek_device(at, NULL);
	host.memory_type = UCS_MEMORY_TYPE_HOST;
	status = real.ucp_mem_map(context, &host, handle);
	if (status != UCS_OK) {
		free(r);
		return status;
	}
	*r = (struct region){.handle = *handle,
			     .at = (uintptr_t)at,
			     .pages = (uintptr_t)host.address,
			     .bytes = params->length,
			     .type = params->memory_type};
	pthread_mutex_lock(&lock);
	r->next = regions;
	regions = r;
	pthread_mutex_unlock(&lock);
	return UCS_OK;
}

static ucs_status_t unmap(ucp_context_h context, ucp_mem_h handle)
{
	struct region **at = &regions, *gone;

	pthread_mutex_lock(&lock);
	while ((*at)->handle != handle)
		at = &(*at)->next;
	gone = *at;
	*at = gone->next;
	pthread_mutex_unlock(&lock);
	free(gone);
	return real.ucp_mem_unmap(context, handle);
}

/* Where the real UCX finds it; 0: nobody has told it of that. */
static uintptr_t pages_of(const void *buffer, size_t bytes,
			  ucp_request_param_t *param)
{
	uintptr_t at = (uintptr_t)buffer, pages = 0;

	if (!(param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) ||
	    param->memory_type == UCS_MEMORY_TYPE_HOST)
		return at;
	pthread_mutex_lock(&lock);
	for (struct region *r = regions; r; r = r->next)
		if (r->type == param->memory_type && at >= r->at &&
		    at + bytes <= r->at + r->bytes)
			pages = r->pages + (at - r->at);
	pthread_mutex_unlock(&lock);
	param->memory_type = UCS_MEMORY_TYPE_HOST;
	return pages;
}

static ucs_status_ptr_t send_am(ucp_ep_h ep, unsigned id, const void *header,
				size_t header_len, const void *buffer,
				size_t count, const ucp_request_param_t *param)
{
	ucp_request_param_t host = *param;
	uintptr_t pages = pages_of(buffer, count, &host);
	bool rendezvous = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) &&
			  param->flags & UCP_AM_SEND_FLAG_RNDV;

	if (pages != (uintptr_t)buffer && (!pages || !rendezvous))
		return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
	return real.ucp_am_send_nbx(ep, id, header, header_len,
				    (const void *)pages, count, &host);
}

static ucs_status_ptr_t receive_am(ucp_worker_h worker, void *data,
				   void *buffer, size_t count,
				   const ucp_request_param_t *param)
{
	ucp_request_param_t host = *param;
	uintptr_t pages = pages_of(buffer, count, &host);

	if (buffer && !pages)
		return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
	return real.ucp_am_recv_data_nbx(worker, data, (void *)pages, count,
					 &host);
}

void ucx_devices_play(bool maps)
{
	char why[256];

	if (!real.ucp_mem_map && !ucx_load(why, sizeof(why)))
		return;
	if (!real.ucp_mem_map)
		real = ucx;
	can_map = maps;
	ucx.needs_no_context = true;
	ucx.ucp_context_query = query;
	ucx.ucp_mem_map = map;
	ucx.ucp_mem_unmap = unmap;
	ucx.ucp_am_send_nbx = send_am;
	ucx.ucp_am_recv_data_nbx = receive_am;
}
