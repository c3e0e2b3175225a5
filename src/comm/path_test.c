/* SPDX-License-Identifier: BSD-3-Clause */
/* Two communicators that never meet open their transports and register memory.
 */
#include "src/comm/create.h"
#include "src/comm/path_test.h"

#include <stdio.h>
#include <string.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "src/comm/setup.h"
#include "src/memory/lease.h"
#include "src/core/paths.h"
#include "src/core/memory.h"
#include "src/core/rank_address.h"

/* Memory for which transports are asked */
#define BYTES 65536

struct end {
	struct dicomm_comm *comm; /* of two ranks, of which this is one */
	bool on_host;
	void *memory;
	struct mem_handles handles;
	char how[TRANSPORT_ACCESS_TEXT];
};

static dicomm_result_t begin(struct end *e, const char *device, int rank)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const struct accel_work *work;

	config.device = device;
	TRY(comm_create(&e->comm, 2, rank, &config));
	work = e->comm->accel->work;
	e->on_host = !work || work->caps(e->comm->index) & ACCEL_SHARES_HOST;
	return comm_open_device_transports(e->comm);
}

static dicomm_result_t hold(struct end *e)
{
	struct tp_region region = {
		.accel = e->comm->accel, .index = e->comm->index, .len = BYTES};

	if (e->on_host)
		return DICOMM_SUCCESS;
	TRY(e->comm->accel->alloc(e->comm->index, BYTES, &e->memory));
	region.addr = e->memory;
	return transport_access_register(e->comm, &region, &e->handles, e->how);
}

static dicomm_result_t try_both(struct end e[2], const char *const device[2])
{
	for (int i = 0; i < 2; i++)
		TRY(begin(&e[i], device[i], i));
	for (int i = 0; i < 2; i++)
		TRY(rank_address_copy(e[i].comm, e[1 - i].comm));
	for (int i = 0; i < 2; i++)
		TRY(hold(&e[i]));
	return DICOMM_SUCCESS;
}

static void end(struct end *e)
{
	if (!e->comm)
		return;
	comm_mem_deregister(e->comm, &e->handles);
	if (e->memory)
		lease_free(e->comm->accel, e->comm->index, e->memory);
	comm_free(e->comm);
}

/* Bit i: transport i leads to the other rank and takes this rank's memory. */
static unsigned mask_to(const struct end *e, int rank)
{
	unsigned all = comm_transports_to(e->comm, 1 - rank);

	return e->on_host ? all : all & e->handles.transports;
}

dicomm_result_t path_test_run(const char *first, const char *second,
			      struct path_test *out)
{
	const char *const device[2] = {first, second};
	struct end e[2] = {{.comm = NULL}, {.comm = NULL}};
	dicomm_result_t status = try_both(e, device);

	*out = (struct path_test){.wired = false};
	if (status == DICOMM_SUCCESS) {
		out->wired = mask_to(&e[0], 0) & mask_to(&e[1], 1);
		out->second = e[0].on_host ||
			      (!e[1].on_host && e[0].handles.transports &&
			       !e[1].handles.transports);
		memcpy(out->how, e[out->second].how, sizeof(out->how));
	} else {
		out->second = !e[0].comm || e[0].on_host;
		snprintf(out->how, sizeof(out->how), "%s", log_last_error());
	}
	end(&e[0]);
	end(&e[1]);
	return status == DICOMM_ERR_NO_MEMORY ? status : DICOMM_SUCCESS;
}
