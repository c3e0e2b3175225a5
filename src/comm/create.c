/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates a communicator with its settings, and frees all that it owns. */
#include "src/comm/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/fork.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/base/sparse.h"
#include "src/boot/store/launcher.h"
#include "src/comm/job_info.h"
#include "src/comm/metrics.h"
#include "src/core/cross_progress.h"
#include "src/core/fault.h"
#include "src/core/member.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/device/user_buffer.h"
#include "src/device/transport_access.h"
#include "src/engine/prepare.h"
#include "src/engine/tagged.h"
#include "src/engine/trace.h"
#include "src/island/island.h"
#include "src/links/drift.h"
#include "src/stream/driver.h"
#include "src/stream/submit.h"
#include "src/core/memory.h"

static pthread_once_t fence_once = PTHREAD_ONCE_INIT;
static struct handle_pool pool = HANDLE_POOL(struct dicomm_comm);

/* Messages show the first COMM_NAME_BYTES - 1 of them. */
#define NAME_MOST 1023

static void forked(void)
{
	atomic_fetch_add(&comm_generation, 1);
	fence_announce();
	group_forget();
	cross_progress_forget();
}

static int pick(int given, int64_t otherwise)
{
	return given == DICOMM_UNDEFINED_INT ? (int)otherwise : given;
}

static dicomm_result_t apply_device(struct dicomm_comm *comm)
{
	const char *device = comm->config.device ? comm->config.device
						 : config_string(CONFIG_DEVICE);
	char why[256];
	dicomm_device_info_t info;

	if (!*device)
		device = "host";
	comm->accel = accel_find(device, &comm->index, why, sizeof(why));
	if (!comm->accel)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: device %s: %s", device, why);
	/* The library's own spelling, which others compare: a user may write
	 * host:0. */
	device = comm->accel->name;
	if (comm->accel->work) {
		TRY(comm->accel->describe(comm->index, &info));
		device = info.name;
	}
	snprintf(comm->device, sizeof(comm->device), "%s", device);
	return DICOMM_SUCCESS;
}

static dicomm_result_t apply_slots(struct dicomm_comm *comm)
{
	comm->slots = (uint32_t)config_int(CONFIG_SHM_SLOTS);
	if (comm->slots < 4 || comm->slots > 64 ||
	    (comm->slots & (comm->slots - 1)))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_SHM_SLOTS %u: not 4, 8, 16, 32 or 64",
			    comm->slots);
	comm->slot_bytes = (uint32_t)config_int(CONFIG_SHM_SLOT_BYTES);
	if (comm->slot_bytes < 4096 || comm->slot_bytes % 4096 ||
	    comm->slot_bytes > 1u << 24)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_SHM_SLOT_BYTES %u: not a multiple of 4096 "
			    "up to 16M",
			    comm->slot_bytes);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_switch(const char *name, int value)
{
	if (value == DICOMM_UNDEFINED_INT || value == 0 || value == 1)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "config: %s %d: neither 0 nor 1", name, value);
}

/* It stands in messages of one line. */
static dicomm_result_t check_name(const char *name)
{
	size_t len = name ? strlen(name) : 0;

	if (len > NAME_MOST)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: name %.40s...: %zu bytes, more than %d",
			    name, len, NAME_MOST);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 127)
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "config: name: byte %zu is the control "
				    "character %d",
				    i, name[i]);
	return DICOMM_SUCCESS;
}

static dicomm_result_t apply_config(struct dicomm_comm *comm)
{
	const dicomm_config_t *c = &comm->config;

	TRY(check_switch("blocking", c->blocking));
	TRY(check_switch("deterministic", c->deterministic));
	TRY(check_name(c->name));
	snprintf(comm->name, sizeof(comm->name), "%s",
		 c->name ? c->name : "comm");
	comm->blocking = pick(c->blocking, 1) != 0;
	comm->timeout_ms = pick(c->timeout_ms, config_int(CONFIG_TIMEOUT_MS));
	if (comm->timeout_ms < 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: timeout_ms %d: negative",
			    comm->timeout_ms);
	comm->warn_late_ms = (int)config_int(CONFIG_WARN_LATE_MS);
	comm->join_ms =
		pick(c->bootstrap_timeout_ms, launcher_patience_s() * 1000);
	if (c->bootstrap_timeout_ms != DICOMM_UNDEFINED_INT &&
	    c->bootstrap_timeout_ms <= 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: bootstrap_timeout_ms %d: not positive",
			    c->bootstrap_timeout_ms);
	comm->deterministic =
		pick(c->deterministic, config_bool(CONFIG_DETERMINISTIC)) != 0;
	if (c->staging && strcmp(c->staging, "auto") &&
	    strcmp(c->staging, "never"))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: staging %s: neither auto nor never",
			    c->staging);
	if (strcmp(island_wish(comm), "off") &&
	    strcmp(island_wish(comm), "auto") &&
	    strcmp(island_wish(comm), "nccl") &&
	    strcmp(island_wish(comm), "rccl"))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: island %s: not off, auto, nccl or rccl",
			    island_wish(comm));
	if (c->lanes != DICOMM_UNDEFINED_INT && (c->lanes < 1 || c->lanes > 8))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: lanes %d: not in 1 .. 8", c->lanes);
	TRY(apply_device(comm));
	TRY(apply_slots(comm));
	comm->map_threshold = (uint64_t)config_int(CONFIG_SHM_MAP_THRESHOLD);
	return DICOMM_SUCCESS;
}

static void free_registrations(struct dicomm_comm *comm)
{
	struct registration *r;

	while ((r = comm->registered.first)) {
		comm->registered.first = r->next;
		comm_mem_deregister(comm, &r->handles);
		free(r);
	}
}

void comm_free(struct dicomm_comm *comm)
{
	if (!comm)
		return;
	metrics_remove(comm);
	job_info_remove(comm);
	cross_progress_remove(comm);
	trace_close(comm);
	if (comm->control)
		control_close(comm->control);
	recovery_close(comm->recovery);
	island_close(comm);
	transport_access_free(comm);
	device_stop(comm);
	user_buffer_close(comm);
	neighbour_close_all(comm);
	device_close(comm);
	free_registrations(comm);
	comm_mem_free(comm, comm->scratch.at, &comm->scratch.handles);
	comm_mem_free(comm, comm->bounce_buffers.memory,
		      &comm->bounce_buffers.handles);
	engine_free_spare(comm);
	free(comm->place);
	tagged_free(comm);
	if (comm->service)
		comm->service->free(comm);
	prepare_free_all(comm);
	/* Begin to close with all peers, so that they are waited for together.
	 */
	comm_each_transport (w, comm)
		w->transport->close(w->device);
	pthread_mutex_destroy(&comm->registered.lock);
	pthread_mutex_destroy(&comm->fault.lock);
	comm_config_free(&comm->config);
	sparse_free(comm->peers, (size_t)comm->ranks, sizeof(*comm->peers));
	free(comm->ways);
	free(comm->members);
	free(comm->memories);
	free(comm->recoveries);
	free(comm->addresses);
	free(comm->peer_access);
	links_free(comm->links);
	pthread_mutex_destroy(&comm->links_lock);
	drift_free(comm);
	free(comm->logs.send);
	free(comm->logs.recv);
	handle_free(&pool, comm);
}

dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config)
{
	struct dicomm_comm *comm;
	dicomm_result_t status;

	fork_add(FORK_COMMS, forked);
	fork_add(FORK_STREAMS, driver_forget);
	pthread_once(&fence_once, fence_init);
	atomic_store(&data_path_lets_begin, fault_lets_enter);
	if (ranks < 1)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: nranks %d: not positive", ranks);
	if (ranks > CONTROL_RANKS_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: nranks %d: more than %d", ranks,
			    CONTROL_RANKS_MAX);
	if (rank < 0 || rank >= ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: rank %d: not in 0 .. %d", rank,
			    ranks - 1);
	comm = handle_alloc(&pool);
	if (!comm)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	pthread_mutex_init(&comm->registered.lock, NULL);
	pthread_mutex_init(&comm->fault.lock, NULL);
	pthread_mutex_init(&comm->links_lock, NULL);
	comm->generation = atomic_load(&comm_generation);
	comm->rank = rank;
	comm->ranks = ranks;
	status = comm_config_copy(&comm->config, config);
	if (status == DICOMM_SUCCESS)
		status = apply_config(comm);
	if (status != DICOMM_SUCCESS)
		goto fail;
	comm->peers = sparse_alloc((size_t)ranks, sizeof(*comm->peers));
	comm->ways = calloc((size_t)ranks, sizeof(*comm->ways));
	comm->members = calloc((size_t)ranks, sizeof(*comm->members));
	comm->logs.send = calloc(1, sizeof(*comm->logs.send));
	comm->logs.recv = calloc(1, sizeof(*comm->logs.recv));
	if (!comm->peers || !comm->ways || !comm->members || !comm->logs.send ||
	    !comm->logs.recv) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "comm_init_rank: no memory for %d ranks", ranks);
		goto fail;
	}
	status = trace_open(comm);
	if (status != DICOMM_SUCCESS)
		goto fail;
	comm->magic = COMM_MAGIC;
	job_info_add(comm);
	*out = comm;
	return DICOMM_SUCCESS;

fail:
	comm_free(comm);
	return status;
}
