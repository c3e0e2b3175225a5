/* SPDX-License-Identifier: BSD-3-Clause */
/* What a user may ask: versions, errors, counters, decisions. */
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "src/accel/accel.h"
#include "src/base/cancel.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/boot/control/id.h"
#include "src/boot/control/job_ask.h"
#include "src/boot/net/interface.h"
#include "src/comm/path_test.h"
#include "src/comm/setup.h"
#include "src/device/device.h"
#include "src/device/path.h"
#include "src/island/island.h"
#include "src/links/cost_table.h"
#include "src/links/topology.h"
#include "src/stream/batch.h"
#include "src/topo/node.h"
#include "src/core/fault.h"

dicomm_result_t dicomm_get_version(int *version)
{
	if (!version)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "get_version: version is NULL");
	*version = DICOMM_VERSION;
	return DICOMM_SUCCESS;
}

const char *dicomm_get_error_string(dicomm_result_t result)
{
	switch (result) {
	case DICOMM_SUCCESS:
		return "no error";
	case DICOMM_ERR_DEVICE:
		return "a call of the device's runtime failed";
	case DICOMM_ERR_SYSTEM:
		return "a system call failed";
	case DICOMM_ERR_INTERNAL:
		return "internal error";
	case DICOMM_ERR_INVALID_ARGUMENT:
		return "invalid argument";
	case DICOMM_ERR_INVALID_USAGE:
		return "invalid usage";
	case DICOMM_ERR_REMOTE:
		return "another rank failed or left";
	case DICOMM_IN_PROGRESS:
		return "in progress";
	case DICOMM_ERR_TIMEOUT:
		return "timed out";
	case DICOMM_ERR_NO_MEMORY:
		return "out of memory";
	case DICOMM_ERR_UNSUPPORTED:
		return "not supported";
	case DICOMM_ERR_NO_PATH:
		return "no path between two ranks";
	case DICOMM_ERR_ABORTED:
		return "the communicator was aborted";
	}
	return "unknown result code";
}

const char *dicomm_get_last_error(dicomm_comm_t comm)
{
	/* Anybody may ask for the text of a broken communicator. */
	if (comm && comm->magic == COMM_MAGIC &&
	    (fault_is(comm) || fault_pends_idle(comm)))
		fault_report(comm);
	return log_last_error();
}

static dicomm_result_t check_handle(struct dicomm_comm *comm, const char *f,
				    const void *out, const char *name)
{
	if (!comm || comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: comm %p is not a communicator", f,
			    (void *)comm);
	if (comm_is_child(comm))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm belongs to the parent of this process",
			    f);
	if (!out)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: %s is NULL", f,
			    name);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_count(dicomm_comm_t comm, int *count)
{
	TRY(check_handle(comm, "comm_count", count, "count"));
	*count = comm->ranks;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_user_rank(dicomm_comm_t comm, int *rank)
{
	TRY(check_handle(comm, "comm_user_rank", rank, "rank"));
	*rank = comm->rank;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_device(dicomm_comm_t comm, const char **device)
{
	TRY(check_handle(comm, "comm_device", device, "device"));
	*device = comm->device;
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_stats(dicomm_comm_t comm, dicomm_stats_t *stats)
{
	dicomm_stats_t s;
	size_t size;

	TRY(check_handle(comm, "comm_stats", stats, "stats"));
	size = stats->size;
	if (size < sizeof(size) || size > 4096)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_stats: size %zu: not sizeof(dicomm_stats_t)",
			    size);
	comm_counters(comm, &s);
	s.size = size;
	s.bytes_direct = s.bytes_received - s.bytes_staged;
	s.memory_bytes += comm->scratch.bytes +
			  batch_bytes((size_t)data_path_queued(&comm->path));
	if (comm->dev) {
		s.device_bytes =
			comm->scratch.bytes + device_exported_bytes(comm->dev);
		s.memory_bytes += device_stages_bytes(comm->dev) +
				  device_exported_bytes(comm->dev);
	}
	if (comm->bounce_buffers.memory)
		s.memory_bytes += (uint64_t)COMM_BOUNCES * comm->slot_bytes;
	comm_each_transport (w, comm)
		s.memory_bytes += w->transport->memory(w->device);
	s.under_way = comm_is_used(comm);
	s.comm_hash = comm->members[0].fresh;
	memset(stats, 0, size);
	memcpy(stats, &s, size < sizeof(s) ? size : sizeof(s));
	stats->size = size;
	return DICOMM_SUCCESS;
}

static dicomm_result_t find_collective(const char *who, const char *operation,
				       enum coll *out)
{
	*out = operation ? coll_from_name(operation) : COLL_KINDS;
	if (*out < COLL_KINDS)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: operation %s: no such collective", who,
		    operation ? operation : "NULL");
}

static dicomm_result_t explain(const struct select_table *table,
			       const struct links *links, const char *operation,
			       int rank, int ranks, uint64_t bytes, char *text,
			       size_t len)
{
	struct shape shape = {.rank = rank, .ranks = ranks, .links = links};

	TRY(find_collective("explain", operation, &shape.coll));
	/* Look it up as calls do, so that the counters match. */
	shape.root = coll_rooted(shape.coll) ? 0 : -1;
	if (!text || !len)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "explain: no room for text");
	return select_explain(table, &shape, bytes, text, len);
}

dicomm_result_t dicomm_comm_explain(dicomm_comm_t comm, const char *operation,
				    size_t count, dicomm_datatype_t type,
				    char *text, size_t len)
{
	enum coll coll = operation ? coll_from_name(operation) : COLL_KINDS;
	dicomm_result_t status;
	uint64_t bytes;
	size_t n;

	TRY(comm_check(comm, "comm_explain"));
	if (!type_valid(type))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_explain: type %d: no such datatype",
			    (int)type);
	bytes = count * type_bytes(type);
	if (coll != COLL_ALLREDUCE && coll != COLL_REDUCE &&
	    coll != COLL_BROADCAST)
		bytes *= (uint64_t)comm->ranks;
	pthread_mutex_lock(&comm->links_lock);
	status = explain(&comm->table, comm->links, operation, comm->rank,
			 comm->ranks, bytes, text, len);
	pthread_mutex_unlock(&comm->links_lock);
	if (status != DICOMM_SUCCESS)
		return status;
	n = strlen(text);
	island_explain(comm, coll, bytes, type, text + n, len - n);
	n += strlen(text + n);
	return peer_access_explain(comm, text + n, len - n);
}

/* The tables by which a communicator of so many ranks would select, if it
 * existed */
static dicomm_result_t plan_table(const char *who, const char *topology,
				  int ranks, struct select_table *table,
				  struct links **links)
{
	dicomm_result_t status;

	if (ranks < 1)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: nranks %d: not positive", who, ranks);
	TRY(topology_plan(topology ? topology : config_string(CONFIG_TOPO_FILE),
			  ranks, !comm_uses_local_transports(), links));
	status = cost_table_make(ranks,
				 (uint32_t)config_int(CONFIG_SHM_SLOT_BYTES),
				 config_bool(CONFIG_DETERMINISTIC), table);
	if (*links)
		table->params.node_cores = 0;
	/* One host has no links, so take its rates from its node. */
	if (*links && (*links)->nodes == 1)
		estimate_params_of_node(&table->params, links_node(*links, 0));
	if (*links && (*links)->nodes > 1)
		table->params.slot_bytes =
			comm_slot_bytes_apart((uint32_t)ranks, (*links)->nodes);
	if (status != DICOMM_SUCCESS)
		links_free(*links);
	return status;
}

dicomm_result_t dicomm_explain(const char *operation, int nranks, size_t bytes,
			       char *text, size_t len)
{
	struct select_table table;
	struct links *links;
	dicomm_result_t status;

	TRY(plan_table("explain", NULL, nranks, &table, &links));
	status = explain(&table, links, operation, 0, nranks, bytes, text, len);
	links_free(links);
	return status;
}

static const struct algorithm *algorithm_at(enum coll coll, int index)
{
	for (int i = 0; index >= 0 && algorithms[i]; i++)
		if (algorithms[i]->coll == coll && index-- == 0)
			return algorithms[i];
	return NULL;
}

dicomm_result_t dicomm_predict(const char *topology, const char *operation,
			       int nranks, int index, const size_t *bytes,
			       int n, const char **algorithm, double *seconds)
{
	struct shape shape = {.ranks = nranks};
	const struct algorithm *a;
	struct select_table table;
	struct links *links;
	dicomm_result_t status = DICOMM_SUCCESS;
	char text[80];
	uint64_t ps;

	TRY(find_collective("predict", operation, &shape.coll));
	if (!algorithm || (n > 0 && (!bytes || !seconds)))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "predict: %s is NULL",
			    !algorithm ? "algorithm"
			    : !bytes   ? "bytes"
				       : "seconds");
	a = algorithm_at(shape.coll, index);
	if (!a) {
		snprintf(text, sizeof(text), "predict: %s has no algorithm %d",
			 operation, index);
		/* The caller counts up until this, so log nothing. */
		log_set_last_error(text);
		*algorithm = NULL;
		return DICOMM_ERR_INVALID_ARGUMENT;
	}
	TRY(plan_table("predict", topology, nranks, &table, &links));
	shape.links = links;
	for (int i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		status = select_predict(&table, &shape, bytes[i], a, &ps);
		seconds[i] = ps < SELECT_NEVER ? (double)ps * 1e-12 : NAN;
	}
	*algorithm = a->name;
	links_free(links);
	return status;
}

/* Describe the device as the end of a rank that is bound to it. */
static dicomm_result_t end_of(const char *name, const char *device, int pid,
			      struct path_end *end)
{
	unsigned caps = ACCEL_SHARES_HOST;
	const struct accel *accel;
	char why[256];
	int index;

	if (!device)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "explain_devices: %s is NULL", name);
	accel = accel_find(device, &index, why, sizeof(why));
	if (!accel)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "explain_devices: %s %s: %s", name, device, why);
	if (accel->work)
		caps = accel->work->caps(index);
	*end = (struct path_end){.device = device,
				 .pid = pid,
				 .on_host = caps & ACCEL_SHARES_HOST,
				 .exports = caps & ACCEL_IPC};
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_explain_devices(const char *first, const char *second,
				       char *text, size_t len)
{
	struct path_pair p = {.why_unmapped = NO_LOCAL_TRANSPORT, .wiring = ""};
	struct path_test attempt;
	enum path path;

	TRY(end_of("first", first, 1, &p.a));
	TRY(end_of("second", second, 2, &p.b));
	if (!text || !len)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "explain_devices: no room for text");
	p.never = !strcmp(config_string(CONFIG_STAGING), "never");
	p.mapped = comm_uses_local_transports() && path_may_map(&p.a, &p.b);
	path = path_find(&p);
	if (path > PATH_RDMA || (path == PATH_MAPPED && p.never)) {
		TRY(path_test_run(first, second, &attempt));
		p.wired = attempt.wired;
		p.wiring = attempt.how;
		p.wiring_of = attempt.second ? second : first;
	}
	path_explain(&p, text, len);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_param_info(int index, dicomm_param_info_t *info)
{
	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "param_info: info is NULL");
	if (!config_row(index, info)) {
		log_set_last_error("param_info: no parameter of that number");
		return DICOMM_ERR_INVALID_ARGUMENT;
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_transport_info(int index, dicomm_transport_info_t *info)
{
	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "transport_info: info is NULL");
	for (int i = 0; transports[i]; i++) {
		if (i != index)
			continue;
		info->name = transports[i]->name;
		info->reason[0] = '\0';
		info->usable = transports[i]->usable(info->reason,
						     sizeof(info->reason));
		return DICOMM_SUCCESS;
	}
	/* The caller counts up until this, so log nothing. */
	log_set_last_error("transport_info: no transport of that number");
	return DICOMM_ERR_INVALID_ARGUMENT;
}

dicomm_result_t dicomm_network_info(dicomm_network_info_t *info)
{
	struct interface chosen;

	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "network_info: info is NULL");
	id_learn_interface(config_string(CONFIG_COMM_ID));
	TRY(interface_choose(&chosen));
	snprintf(info->interface, sizeof(info->interface), "%s", chosen.name);
	if (getnameinfo((const struct sockaddr *)&chosen.address.storage,
			chosen.address.len, info->address,
			sizeof(info->address), NULL, 0, NI_NUMERICHOST))
		snprintf(info->address, sizeof(info->address), "?");
	snprintf(info->reason, sizeof(info->reason), "%s", chosen.why);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_job_info(const char *address, dicomm_job_fn_t fn,
				void *ctx)
{
	CANCEL_HELD();

	if (!address || !fn)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "job_info: %s is NULL",
			    address ? "fn" : "address");
	TRY(config_check());
	return job_ask(address, fn, ctx);
}

/* Memory for which adapters are asked */
#define PROBE_BYTES 65536

/* Find the pair of that number; otherwise subtract the pairs seen here. */
static bool find_adapter(const struct tp_region *region, int *index,
			 dicomm_adapter_info_t *info)
{
	struct tp_mem_support support;
	struct tp_place place;

	comm_place(region->accel, region->index, &place);
	for (int t = 0; transports[t]; t++)
		for (unsigned n = 0;
		     transports[t]->mem_support(n, region, &place, &support);
		     n++) {
			if ((*index)--)
				continue;
			info->transport = transports[t]->name;
			info->direct = support.supported;
			memcpy(info->adapter, support.name,
			       sizeof(support.name));
			memcpy(info->how, support.how, sizeof(support.how));
			return true;
		}
	return false;
}

static dicomm_result_t find_pair(const struct accel *accel, int device,
				 int *index, bool *found,
				 dicomm_adapter_info_t *info)
{
	struct tp_region region = {
		.accel = accel, .index = device, .len = PROBE_BYTES};
	void *memory = NULL;

	if (!accel->work || accel->work->caps(device) & ACCEL_SHARES_HOST)
		return DICOMM_SUCCESS;
	TRY(accel->alloc(device, PROBE_BYTES, &memory));
	region.addr = memory;
	snprintf(info->device, sizeof(info->device), "%s:%d", accel->name,
		 device);
	*found = find_adapter(&region, index, info);
	lease_free(accel, device, memory);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_adapter_info(int index, dicomm_adapter_info_t *info)
{
	char why[256];
	bool found = false;

	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "adapter_info: info is NULL");
	for (int i = 0; index >= 0 && accels[i] && !found; i++) {
		int n = accels[i]->count(why, sizeof(why));

		for (int d = 0; d < n && !found; d++)
			TRY(find_pair(accels[i], d, &index, &found, info));
	}
	if (found)
		return DICOMM_SUCCESS;
	log_set_last_error("adapter_info: no pair of that number");
	return DICOMM_ERR_INVALID_ARGUMENT;
}

dicomm_result_t dicomm_device_kind_info(int index,
					dicomm_device_kind_info_t *info)
{
	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "device_kind_info: info is NULL");
	for (int i = 0; accels[i]; i++) {
		if (i != index)
			continue;
		info->name = accels[i]->name;
		info->reason[0] = '\0';
		info->devices =
			accels[i]->count(info->reason, sizeof(info->reason));
		return DICOMM_SUCCESS;
	}
	log_set_last_error("device_kind_info: no kind of that number");
	return DICOMM_ERR_INVALID_ARGUMENT;
}

dicomm_result_t dicomm_device_info(int index, dicomm_device_info_t *info)
{
	char why[256];

	if (!info)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "device_info: info is NULL");
	for (int i = 0; index >= 0 && accels[i]; i++) {
		int n = accels[i]->count(why, sizeof(why));

		if (index < n)
			return accels[i]->describe(index, info);
		index -= n;
	}
	log_set_last_error("device_info: no device of that number");
	return DICOMM_ERR_INVALID_ARGUMENT;
}
