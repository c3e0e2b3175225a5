/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of devices that UCX can send from and receive into. UCX must say that
 * it knows the type of memory, and map it. For that UCX_TLS must name the
 * device's transports ("tcp,cuda" or "all"); without them UCX takes any pointer
 * for host memory. Such memory is sent and received by rendezvous, since only
 * then UCX writes where the receiver wants it.
 *
 * When a request of UCX is complete, the data is in the memory, and kernels
 * that start then see what copies of the device wrote. But UCX does not flush
 * what an adapter wrote. So devices that need a flush are used over TCP only:
 * there all data is copied, through host memory of UCX.
 */
#include "transports/ucx/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "transports/ucx/device.h"
#include "transports/ucx/load.h"

/* Only these: later types have different numbers in different versions of
 * UCX. */
static const struct {
	const char *accel, *name;
	ucs_memory_type_t type;
} types[] = {{"cuda", "cuda", UCS_MEMORY_TYPE_CUDA},
	     {"hip", "rocm", UCS_MEMORY_TYPE_ROCM}};
#define TYPES (sizeof(types) / sizeof(*types))

/* Lock held. */
static bool knows(const struct tp_device *dev, ucs_memory_type_t type)
{
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	return ucx.ucp_context_query(dev->context, &attr) == UCS_OK &&
	       attr.memory_types >> type & 1;
}

static ucs_status_t map(struct tp_device *dev, struct tp_mem *mem)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH |
			      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
		.address = (void *)mem->at,
		.length = mem->len,
		.memory_type = mem->type,
	};

	return ucx.ucp_mem_map(dev->context, &params, &mem->memory);
}

/* Lock held. False: `why` says why not. */
static bool map_if_known(struct tp_device *dev, const struct tp_region *region,
			 const char *name, struct tp_mem *mem, char *why,
			 size_t len)
{
	const char *tls = getenv("UCX_TLS");
	ucs_status_t status;

	if (!knows(dev, mem->type)) {
		snprintf(why, len,
			 "UCX %s takes no memory of %s: it was built without, "
			 "or UCX_TLS (%.40s) leaves that out",
			 ucx.ucp_get_version_string(), name, tls ? tls : "tcp");
		return false;
	}
	/* The progress thread has none. */
	if (mem->type == UCS_MEMORY_TYPE_CUDA && !ucx.needs_no_context) {
		snprintf(why, len,
			 "UCX %s copies memory of cuda only in threads with a "
			 "CUDA context; 1.19 does in any",
			 ucx.ucp_get_version_string());
		return false;
	}
	/* Other devices are assumed to see what the owner sees, as in all
	 * programs that use UCX. */
	if (!dev->tcp &&
	    region->accel->work->caps(region->index) & ACCEL_FLUSH) {
		snprintf(why, len,
			 "UCX does not flush what an adapter writes to it");
		return false;
	}
	status = map(dev, mem);
	if (status != UCS_OK)
		snprintf(why, len, "ucp_mem_map of %s: %s", name,
			 ucx.ucs_status_string(status));
	return status == UCS_OK;
}

dicomm_result_t ucx_mem_reg_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_mem **out, char *how, size_t len)
{
	struct tp_mem *mem;
	size_t i = 0;
	bool taken;

	while (i < TYPES && strcmp(types[i].accel, region->accel->name))
		i++;
	if (i == TYPES) {
		snprintf(how, len, "UCX knows no memory of that kind");
		return DICOMM_ERR_UNSUPPORTED;
	}
	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return FAIL(DICOMM_ERR_NO_MEMORY, "ucx: out of memory");
	mem->at = (uintptr_t)region->addr;
	mem->len = region->len;
	mem->type = types[i].type;
	framed_lock(&dev->base);
	taken = map_if_known(dev, region, types[i].name, mem, how, len);
	if (taken) {
		mem->next = dev->mems;
		dev->mems = mem;
	}
	framed_unlock(&dev->base);
	if (!taken) {
		free(mem);
		return DICOMM_ERR_UNSUPPORTED;
	}
	snprintf(how, len, "memory of %s%s", types[i].name,
		 dev->tcp ? ", over TCP through host memory of its own" : "");
	*out = mem;
	return DICOMM_SUCCESS;
}

void ucx_mem_dereg(struct tp_device *dev, struct tp_mem *mem)
{
	struct tp_mem **at = &dev->mems;

	/* Host memory has no handle. */
	if (!mem)
		return;
	framed_lock(&dev->base);
	while (*at != mem)
		at = &(*at)->next;
	*at = mem->next;
	ucx.ucp_mem_unmap(dev->context, mem->memory);
	framed_unlock(&dev->base);
	free(mem);
}

ucs_memory_type_t ucx_memory_type(const struct tp_device *dev, uintptr_t at,
				  uint64_t len)
{
	for (const struct tp_mem *h = dev->mems; h; h = h->next)
		if (at >= h->at && at - h->at <= h->len &&
		    len <= h->len - (at - h->at))
			return h->type;
	return UCS_MEMORY_TYPE_HOST;
}
