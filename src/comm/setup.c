/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup: the ranks of a communicator meet, compare what must be equal, and
 * agree on the rest. */
#include "src/comm/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/sparse.h"
#include "src/base/texts.h"
#include "src/base/auth.h"
#include "src/boot/control/id.h"
#include "src/boot/net/sock.h"
#include "src/comm/common_transports.h"
#include "src/comm/job_info.h"
#include "src/comm/metrics.h"
#include "src/core/cross_progress.h"
#include "src/core/host_access.h"
#include "src/island/island.h"
#include "src/message/channel.h"
#include "src/device/device.h"
#include "src/links/cost_table.h"
#include "src/links/drift.h"
#include "src/links/probe.h"
#include "src/links/topology.h"
#include "src/topo/node.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/core/rank_address.h"
#include "src/core/wait_chain.h"

/* Polls before a thread yields its core: about 100 us if every rank has a core
 * of its own; otherwise as long as a reply takes. */
#define SPIN_ALONE 20000
#define SPIN_SHARED 30
/* If all other ranks are beyond a network, each poll is a system call. */
#define SPIN_FAR 50

static void on_failed(void *ctx, dicomm_result_t status, int culprit,
		      const char *text)
{
	struct dicomm_comm *comm = ctx;

	fault_raise(comm, status, culprit, false, "%s", text);
}

static void on_died(void *ctx, int culprit, const char *text)
{
	fault_died(ctx, culprit, text);
}

static bool on_query(void *ctx, int peer, uint32_t class, uint64_t number,
		     uint32_t *signature, char *text, size_t len)
{
	const struct dicomm_comm *comm = ctx;
	uint64_t counts;

	switch (class) {
	case ASK_SEND:
		if (call_log_find(comm->logs.send,
				  call_pair_number(peer, number), signature,
				  text, len))
			return true;
		break;
	case ASK_RECV:
		if (call_log_find(comm->logs.recv,
				  call_pair_number(peer, number), signature,
				  text, len))
			return true;
		break;
	case ASK_RECEIVED:
		*signature = 0;
		snprintf(text, len, "message %llu", (unsigned long long)number);
		return peer >= 0 && peer < comm->ranks &&
		       message_done(&comm->peers[peer]
					     .channel[number % TP_CLASSES]) >=
			       number / TP_CLASSES;
	case ASK_AWAITED:
		snprintf(text, len, "a wait");
		return wait_chain_answer(comm, number, signature);
	case ASK_SIGNALS:
		*signature = 0;
		snprintf(text, len, "windows");
		return atomic_load(&comm->takes_signals);
	case ASK_COUNTS:
		*signature = 0;
		if (!call_log_counts(&comm->logs.collective, number, &counts))
			return false;
		snprintf(text, len, "%llx", (unsigned long long)counts);
		return true;
	default:
		if (call_log_find(&comm->logs.collective, number, signature,
				  text, len))
			return true;
	}
	/* It is queued and has not run yet. */
	if (atomic_load(&comm->state) < COMM_FINALIZING ||
	    data_path_queued(&comm->path))
		return false;
	/* This rank will never make that call. */
	*signature = 0;
	snprintf(text, len, "comm_finalize");
	return true;
}

/* Progress while this thread waits for the control plane. A rank that is not
 * that far yet may wait for a message or a credit that a NIC has lost. This one
 * may also wait for something in another communicator. */
static void on_waiting(void *ctx)
{
	cross_progress_poll_one(ctx);
	cross_progress_poll();
}

static dicomm_result_t check_list(const char *list)
{
	for (const char *p = list + (*list == '^'); *p;) {
		size_t len = strcspn(p, ",");
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)len, p);
		if (!transport_find(name))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "transports %s: there is no transport %s",
				    list, name);
		p += len + (p[len] == ',');
	}
	return DICOMM_SUCCESS;
}

/* Why transports were not opened */
struct reasons {
	char text[512];
	size_t len;
};

/* Transports within this machine; to other machines; of the latter, those that
 * may reach device memory */
enum which { LOCAL, REMOTE, REMOTE_FOR_DEVICES };

static bool is_one_of(const struct transport *t, enum which which)
{
	return t->intra_node == (which == LOCAL) &&
	       (t->device_memory || which != REMOTE_FOR_DEVICES);
}

/* Is it usable, and does it protect data as the user wants? */
static bool may_use(const struct transport *t, char *why, size_t len)
{
	if (t->intra_node || t->encrypts ||
	    !strcmp(config_string(CONFIG_ENCRYPT), "off"))
		return t->usable(why, len);
	snprintf(why, len, "it does not protect data (DICOMM_ENCRYPT %s)",
		 config_string(CONFIG_ENCRYPT));
	return false;
}

static void add_reason(struct reasons *reasons, const struct transport *t,
		       const char *why)
{
	if (reasons->len < sizeof(reasons->text))
		reasons->len += (size_t)snprintf(
			reasons->text + reasons->len,
			sizeof(reasons->text) - reasons->len, "%s%s: %s",
			reasons->len ? "; " : ": ", t->name, why);
}

/* "ucx: open: ..." of transport ucx is "open: ...". */
static const char *without_name(const char *text, const struct transport *t)
{
	size_t n = strlen(t->name);

	return !strncmp(text, t->name, n) && !strncmp(text + n, ": ", 2)
		       ? text + n + 2
		       : text;
}

/* Another one may lead where this one would have led. But what the user asked
 * for by mistake is an error. */
static dicomm_result_t try_open(struct dicomm_comm *comm, size_t i,
				const struct tp_config *config,
				struct reasons *reasons)
{
	const struct transport *t = transports[i];
	struct tp_device *device;
	dicomm_result_t status;
	const char *why;

	log_catch(true);
	status = t->open(config, &device);
	log_catch(false);
	if (status == DICOMM_SUCCESS) {
		comm->transports[i].transport = t;
		atomic_store(&comm->transports[i].device, device);
		return DICOMM_SUCCESS;
	}
	if (status == DICOMM_ERR_INVALID_ARGUMENT ||
	    status == DICOMM_ERR_INVALID_USAGE ||
	    status == DICOMM_ERR_INTERNAL || status == DICOMM_ERR_ABORTED)
		return FAIL(status, "%s", log_last_error());
	why = without_name(log_last_error(), t);
	snprintf(comm->why_closed[i], sizeof(comm->why_closed[i]), "%s", why);
	add_reason(reasons, t, why);
	log_warn("transport %s cannot be used: %s", t->name,
		 comm->why_closed[i]);
	return DICOMM_SUCCESS;
}

static dicomm_result_t open_transports(struct dicomm_comm *comm,
				       enum which which,
				       struct reasons *reasons)
{
	struct tp_config config = {.rank = comm->rank,
				   .ranks = comm->ranks,
				   .core_cache_bytes = node_core_cache_bytes(),
				   .listen = sock_listen};
	const char *list = comm_transports(comm);
	char why[256];

	if (comm->config.lanes != DICOMM_UNDEFINED_INT)
		config.queue_pairs = (uint32_t)comm->config.lanes;
	comm_place(comm->accel, comm->index, &config.place);
	_Static_assert(sizeof(config.key) == AUTH_KEY, "one is the other");
	TRY(check_list(list));
	auth_key_from_text("dicomm wires", id_secret(&comm->id), config.key);
	for (size_t i = 0; transports[i]; i++) {
		if (!is_one_of(transports[i], which) ||
		    !comm_list_has(list, transports[i]))
			continue;
		if (!may_use(transports[i], why, sizeof(why))) {
			log_info("transport %s: not usable: %s",
				 transports[i]->name, why);
			add_reason(reasons, transports[i], why);
			continue;
		}
		comm_size_slots(comm, transports[i], &config);
		TRY(try_open(comm, i, &config, reasons));
	}
	/* A fault was raised before this transport could be stopped. */
	if (fault_is(comm)) {
		fault_stop_transports(comm);
		return fault_report(comm);
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_open_device_transports(struct dicomm_comm *comm)
{
	struct reasons reasons = {.len = 0};

	return open_transports(comm, REMOTE_FOR_DEVICES, &reasons);
}

bool comm_uses_local_transports(void)
{
	const char *list = config_string(CONFIG_TRANSPORTS);
	char why[256];

	for (size_t i = 0; transports[i]; i++)
		if (transports[i]->intra_node &&
		    comm_list_has(list, transports[i]) &&
		    transports[i]->usable(why, sizeof(why)))
			return true;
	return false;
}

uint32_t comm_slot_bytes_apart(uint32_t ranks, uint32_t nodes)
{
	uint32_t own = (uint32_t)config_int(CONFIG_SHM_SLOT_BYTES), wished;
	const char *list = config_string(CONFIG_TRANSPORTS);
	char why[256];

	for (size_t i = 0; transports[i]; i++) {
		const struct transport *t = transports[i];

		if (t->intra_node || !comm_list_has(list, t) ||
		    !t->usable(why, sizeof(why)))
			continue;
		wished = comm_wished_slot_bytes(t, (int)ranks);
		if (nodes < ranks &&
		    (!t->by_reference || ranks > nodes * COMM_WIDE_RANKS))
			wished = 0;
		return wished ? wished : own;
	}
	return own;
}

static bool on_one_host(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (comm->members[r].host != comm->members[0].host)
			return false;
	return true;
}

/* Does this rank reach all others without leaving the machine? */
static bool is_within_machine(struct dicomm_comm *comm)
{
	if (!on_one_host(comm))
		return false;
	for (int r = 0; r < comm->ranks; r++) {
		comm->ways[r] = comm_transports_to(comm, r);
		if (!comm->ways[r])
			return false;
	}
	return true;
}

/* The slot size that this rank wants within the machine, for the sake of a
 * transport to other machines. 0: no change. */
static uint32_t wished_local_slot_bytes(const struct dicomm_comm *comm)
{
	const char *list = comm_transports(comm);
	uint32_t most = 0;
	char why[256];

	/* Each rank may keep such an inbox for each other one of its machine.
	 */
	if (on_one_host(comm) || comm->node_ranks > COMM_WIDE_RANKS)
		return 0;
	for (size_t i = 0; transports[i]; i++) {
		uint32_t wished =
			comm_wished_slot_bytes(transports[i], comm->ranks);

		if (transports[i]->by_reference && wished > most &&
		    comm_list_has(list, transports[i]) &&
		    transports[i]->usable(why, sizeof(why)))
			most = wished;
	}
	return most;
}

static void widen_local(struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		if (w->transport->set_slot_bytes)
			w->transport->set_slot_bytes(w->device,
						     comm->local_slot_bytes);
}

/* Slices may be as long as the smallest slots, also of transports that this
 * rank does not use. */
static void widen(struct dicomm_comm *comm, uint8_t in_use)
{
	uint32_t least = UINT32_MAX;
	struct tp_config config;
	struct comm_transport *w;

	if (!in_use)
		return;
	for (unsigned left = in_use; left; left &= left - 1) {
		comm_size_slots(comm, transports[__builtin_ctz(left)], &config);
		if (config.slot_bytes < least)
			least = config.slot_bytes;
	}
	comm->slot_bytes = least;
	comm->table.params.slot_bytes = least;
	w = &comm->transports[__builtin_ctz(in_use)];
	if (!(in_use & (in_use - 1)) && w->transport->wait_wakes)
		comm->only_transport = w;
}

/* To poll a transport that goes through the kernel takes the core from the
 * thread that brings the messages. */
static void find_slow(struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++) {
		uint8_t mask = comm->ways[r];
		struct comm_transport *w =
			&comm->transports[mask ? __builtin_ctz(mask) : 0];

		if (r == comm->rank || !mask || !w->transport->slow_poll)
			continue;
		comm->slow_transport = w;
		comm->path.makes_system_calls = true;
		if (config_is_default(CONFIG_SPIN) && comm->spin > SPIN_FAR)
			comm->spin = SPIN_FAR;
	}
}

/* A transport could not be opened. Is there another one to every rank? */
static dicomm_result_t check_closed(struct dicomm_comm *comm)
{
	bool closed = false;

	for (size_t i = 0; i < TP_TRANSPORTS; i++)
		closed |= *comm->why_closed[i] != '\0';
	for (int r = 0; closed && r < comm->ranks; r++)
		if (r != comm->rank && !comm->ways[r])
			return comm_no_path(comm, r);
	return DICOMM_SUCCESS;
}

/* Some rank, or the memory of its device, is out of reach of the transports
 * within the machine. Open those to other machines. */
static dicomm_result_t open_far(struct dicomm_comm *comm, enum which which,
				struct reasons *reasons)
{
	struct rank_address *all = calloc((size_t)comm->ranks, sizeof(*all)),
			    mine;
	const char *list = config_string(CONFIG_TRANSPORTS);
	bool any = false;
	dicomm_result_t status;
	uint8_t in_use;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the addresses");
	if (comm->local_slot_bytes)
		widen_local(comm);
	status = open_transports(comm, which, reasons);
	for (size_t i = 0; i < TP_TRANSPORTS; i++)
		any |= comm->transports[i].transport != NULL;
	if (comm->config.transports)
		list = comm->config.transports;
	if (status == DICOMM_SUCCESS && !any)
		status =
			FAIL(DICOMM_ERR_NO_PATH, "no transport is usable%s%s%s",
			     *list ? " of " : "", list, reasons->text);
	rank_address_fill(comm, &mine);
	if (status == DICOMM_SUCCESS)
		status = control_allgather(comm->control, &mine, all,
					   sizeof(mine), comm->join_ms);
	if (status == DICOMM_SUCCESS)
		status = rank_address_keep(comm, all, sizeof(*all));
	free(all);
	if (status == DICOMM_SUCCESS)
		status = common_transports_agree(comm, &in_use);
	if (status != DICOMM_SUCCESS)
		return status;
	widen(comm, in_use);
	find_slow(comm);
	return check_closed(comm);
}

/* Check what must be equal on all ranks of a communicator. */
static dicomm_result_t compare_members(struct dicomm_comm *comm)
{
	const struct member *zero = &comm->members[0];

	for (int r = 0; r < comm->ranks; r++) {
		const struct member *m = &comm->members[r];

		if (m->deterministic != zero->deterministic)
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "ranks disagree: rank 0 has deterministic "
				    "%d, rank %d has %d",
				    zero->deterministic, r, m->deterministic);
		if (strcmp(m->island, zero->island))
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "ranks disagree: rank 0 has island %s, "
				    "rank %d has %s",
				    zero->island, r, m->island);
		if (m->slots != zero->slots ||
		    m->slot_bytes != zero->slot_bytes)
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "ranks disagree: rank 0 has %u slots of "
				    "%u bytes, rank %d has %u of %u",
				    zero->slots, zero->slot_bytes, r, m->slots,
				    m->slot_bytes);
		comm->lacks |= m->lacks;
		comm->node_ranks += m->host == comm->members[comm->rank].host;
	}
	return DICOMM_SUCCESS;
}

/* All ranks select by rank 0's table. *far is set if some rank wants it. Slots
 * within the machine get the size that all want. */
static dicomm_result_t share_table(struct dicomm_comm *comm, bool *far)
{
	struct shared {
		struct select_table table;
		uint32_t local_slot_bytes;
		bool far;
	} *all = calloc((size_t)comm->ranks, sizeof(*all)), mine;
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY, "comm_init_rank: no memory "
						  "for the tables");
	memset(&mine, 0, sizeof(mine));
	mine.far = *far;
	mine.local_slot_bytes = wished_local_slot_bytes(comm);
	/* A bad DICOMM_ALGO is an error on every rank, not on rank 0 alone. */
	if (comm->rank == 0)
		status = cost_table_make(comm->node_ranks, comm->slot_bytes,
					 comm->deterministic, &mine.table);
	else
		status = cost_table_check();
	if (status != DICOMM_SUCCESS) {
		free(all);
		return status;
	}
	status = control_allgather(comm->control, &mine, all, sizeof(mine),
				   comm->join_ms);
	comm->table = all[0].table;
	comm->local_slot_bytes = all[0].local_slot_bytes;
	for (int r = 0; r < comm->ranks; r++) {
		*far |= all[r].far;
		if (all[r].local_slot_bytes < comm->local_slot_bytes)
			comm->local_slot_bytes = all[r].local_slot_bytes;
	}
	free(all);
	return status;
}

void comm_recovery_key(const struct dicomm_comm *comm, uint8_t key[])
{
	auth_key_from_text("dicomm recovery", id_secret(&comm->id), key);
}

static dicomm_result_t join(struct dicomm_comm *comm,
			    const dicomm_unique_id_t *id, int come_ms)
{
	struct control_config cc = {.ranks_from = comm->ranks_from,
				    .rank = comm->rank,
				    .ranks = comm->ranks,
				    .host = node_identity(),
				    .id = id,
				    .timeout_ms = come_ms,
				    .cancelled = &comm->cancelled,
				    .events = {.failed = on_failed,
					       .died = on_died,
					       .query = on_query,
					       .waiting = on_waiting,
					       .ctx = comm}};

	if (comm->config.bootstrap.allgather) {
		cc.id = NULL;
		cc.allgather = comm->config.bootstrap.allgather;
		cc.allgather_ctx = comm->config.bootstrap.ctx;
		cc.secret = &comm->id;
	} else {
		comm->id = *id;
	}
	return control_open(&cc, &comm->control);
}

/* Fill in this rank's entry, except for its recovery address. */
static void describe(struct dicomm_comm *comm, struct member_told *mine)
{
	const struct device *dev = comm->dev;
	struct member *me = &mine->is;

	auth_random((uint8_t *)&me->fresh, sizeof(me->fresh));
	me->host = node_identity();
	me->pid = getpid();
	me->deterministic = comm->deterministic;
	me->slots = comm->slots;
	snprintf(me->island, sizeof(me->island), "%s", island_wish(comm));
	me->slot_bytes = comm->slot_bytes;
	snprintf(me->device, sizeof(me->device), "%s", comm->device);
	me->on_host = !device_has_memory(dev);
	me->never_staged = comm_never_stages(comm);
	rank_address_fill(comm, &mine->address);
	if (!dev)
		return;
	me->lacks = dev->lacks;
	mine->memory.exported = dev->exported_handle;
	if (dev->lease) {
		me->exports = true;
		lease_tell(dev->lease, &mine->memory.lease);
		ipc_tell(dev->ipc, &mine->memory.page);
	}
	mine->memory.stages = dev->where;
	me->in_process = dev->in_process ? in_process_id(dev->in_process) : 0;
}

/* Do ranks send through memory of which the others have to know? */
static bool have_memory(const struct member_told *all, size_t n)
{
	for (size_t r = 0; r < n; r++)
		if (!all[r].is.on_host)
			return true;
	return false;
}

/* Keeps what all ranks have told: most of the room that it came in is empty. */
static dicomm_result_t keep_members(struct dicomm_comm *comm,
				    const struct member_told *all)
{
	size_t n = (size_t)comm->ranks;

	for (size_t r = 0; r < n; r++)
		comm->members[r] = all[r].is;
	comm->recoveries = texts_pack(all->recovery, sizeof(*all),
				      sizeof(all->recovery), (uint32_t)n);
	if (have_memory(all, n))
		comm->memories = calloc(n, sizeof(*comm->memories));
	if (!comm->recoveries || (have_memory(all, n) && !comm->memories))
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	for (size_t r = 0; comm->memories && r < n; r++)
		comm->memories[r] = all[r].memory;
	TRY(compare_members(comm));
	return rank_address_keep(comm, &all->address, sizeof(*all));
}

static dicomm_result_t open_recovery(struct dicomm_comm *comm,
				     char address[SOCK_TEXT])
{
	uint8_t key[AUTH_KEY];
	dicomm_result_t status;

	comm_recovery_key(comm, key);
	status = recovery_open(&comm->recovery, key, comm->rank, address);
	auth_forget(key, sizeof(key));
	return status;
}

static dicomm_result_t exchange_members(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	struct member_told mine, *all;
	dicomm_result_t status;

	memset(&mine, 0, sizeof(mine));
	TRY(open_recovery(comm, mine.recovery));
	describe(comm, &mine);
	all = sparse_alloc(n, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	status = control_allgather(comm->control, &mine, all, sizeof(mine),
				   comm->join_ms);
	if (status == DICOMM_SUCCESS)
		status = keep_members(comm, all);
	sparse_free(all, n, sizeof(*all));
	return status;
}

static void tell_cores_are_shared(struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		if (w->transport->share_cores)
			w->transport->share_cores(w->device);
}

/* Size it for the machine, now that the number of its ranks is known. */
static void adapt(struct dicomm_comm *comm)
{
	int64_t spin =
		config_is_default(CONFIG_SPIN) ? -1 : config_int(CONFIG_SPIN);
	bool shared;

	comm->node_cores = node_cores();
	shared = comm->node_ranks > comm->node_cores;
	if (spin >= 0)
		comm->spin = (unsigned)spin;
	else
		comm->spin = shared ? SPIN_SHARED : SPIN_ALONE;
	if (shared)
		tell_cores_are_shared(comm);
	comm->stream_bytes = node_cache_bytes(comm->node_ranks);
	if (!comm->stream_bytes)
		comm->stream_bytes = UINT64_MAX;
}

/* Some runtimes compile kernels for minutes when they are first used. */
static dicomm_result_t open_device(struct dicomm_comm *comm)
{
	dicomm_result_t status;
	char text[64];

	if (!comm->accel->work)
		return DICOMM_SUCCESS;
	snprintf(text, sizeof(text), "the kernels of %.40s", comm->device);
	control_busy(comm->control, text);
	status = device_open(comm);
	control_busy(comm->control, NULL);
	return status;
}

dicomm_result_t comm_setup(struct dicomm_comm *comm,
			   const dicomm_unique_id_t *id, int come_ms)
{
	uint64_t begin = clock_ns(), met;
	struct reasons reasons = {.len = 0};
	bool far;

	job_info_open();
	metrics_add(comm);
	TRY(join(comm, id, come_ms));
	met = clock_ns();
	TRY(open_transports(comm, LOCAL, &reasons));
	TRY(open_device(comm));
	host_access_look();
	TRY(exchange_members(comm));
	adapt(comm);
	/* If this gather succeeds on one rank, it succeeds on all, and a death
	 * in between is reported after it. Not so for ranks to which another
	 * one was to pass on the result, if that one dies when rank 0 has left
	 * already. */
	far = !is_within_machine(comm);
	TRY(share_table(comm, &far));
	if (far || peer_access_wants_transports(comm))
		TRY(open_far(comm, far ? REMOTE : REMOTE_FOR_DEVICES,
			     &reasons));
	comm->apart = far && on_one_host(comm);
	TRY(topology_find(comm));
	TRY(peer_access_agree(comm));
	TRY(device_register(comm));
	TRY(probe_at_init(comm));
	TRY(drift_open(comm));
	TRY(island_open(comm));
	log_info("%s rank %d of %d ready on %s: %d ranks on %d cores here; "
		 "met in %.1f ms, opened in %.1f ms",
		 comm->name, comm->rank, comm->ranks, comm->device,
		 comm->node_ranks, comm->node_cores,
		 (double)(met - begin) / 1e6, (double)(clock_ns() - met) / 1e6);
	/* A finalize removes it again. */
	cross_progress_add(comm);
	atomic_store(&comm->state, COMM_READY);
	return DICOMM_SUCCESS;
}
