/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator: made, agreed on by all ranks, connected lazily. */
#include "src/core/comm.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/engine.h"
#include "src/core/table.h"
#include "src/topo/node.h"

/* Polls before the core is given away: about 100 us where every rank has a
 * core of its own; else only as long as a reply takes that is under way. */
#define SPIN_ALONE 20000
#define SPIN_SHARED 30

/* ---- handles ---- */

_Atomic int comm_generation; /* of the process: a fork makes the next one */
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	atomic_fetch_add(&comm_generation, 1);
}

static void process_init(void)
{
	pthread_atfork(NULL, NULL, forked);
	fault_init();
}

dicomm_result_t comm_check_slow(struct dicomm_comm *comm, const char *function)
{
	int state;

	if (!comm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: comm is NULL",
			    function);
	if (comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: comm %p is not a communicator", function,
			    (void *)comm);
	if (comm->generation != atomic_load(&comm_generation))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm belongs to the parent of this process",
			    function);
	if (fault_is(comm))
		return fault_report(comm);
	state = atomic_load(&comm->state);
	if (state == COMM_STARTING)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm is still being initialised", function);
	if (state != COMM_READY)
		return FAIL(DICOMM_ERR_INVALID_USAGE, "%s: comm was finalized",
			    function);
	return DICOMM_SUCCESS;
}

/* ---- create and free ---- */

static dicomm_result_t copy_config(struct dicomm_comm *comm,
				   const dicomm_config_t *given)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const char **strings[] = {&comm->config.device, &comm->config.name,
				  &comm->config.transports,
				  &comm->config.staging};

	if (given) {
		if (given->magic != DICOMM_CONFIG_MAGIC ||
		    given->size < offsetof(dicomm_config_t, version) +
					  sizeof(given->version))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "config: not initialised by "
				    "DICOMM_CONFIG_INITIALIZER (magic %#x, "
				    "size %zu)",
				    given->magic, given->size);
		memcpy(&config, given,
		       given->size < sizeof(config) ? given->size
						    : sizeof(config));
	}
	comm->config = config;
	for (size_t i = 0; i < sizeof(strings) / sizeof(*strings); i++)
		if (*strings[i]) {
			*strings[i] = strdup(*strings[i]);
			if (!*strings[i])
				return FAIL(DICOMM_ERR_NO_MEMORY,
					    "config: out of memory");
		}
	return DICOMM_SUCCESS;
}

static int pick(int given, int64_t otherwise)
{
	return given == DICOMM_UNDEFINED_INT ? (int)otherwise : given;
}

static dicomm_result_t apply_config(struct dicomm_comm *comm)
{
	const dicomm_config_t *c = &comm->config;
	const char *device =
		c->device ? c->device : config_string(CONFIG_DEVICE);
	char why[160];
	int index;

	snprintf(comm->name, sizeof(comm->name), "%s",
		 c->name ? c->name : "comm");
	comm->blocking = pick(c->blocking, 1) != 0;
	comm->timeout_ms = pick(c->timeout_ms, config_int(CONFIG_TIMEOUT_MS));
	comm->warn_late_ms = (int)config_int(CONFIG_WARN_LATE_MS);
	comm->deterministic =
		pick(c->deterministic, config_bool(CONFIG_DETERMINISTIC)) != 0;
	if (c->staging && strcmp(c->staging, "auto") &&
	    strcmp(c->staging, "never"))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: staging %s: neither auto nor never",
			    c->staging);
	if (!*device)
		device = "host";
	comm->accel = accel_find(device, &index, why, sizeof(why));
	if (!comm->accel)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "config: device %s: %s", device, why);
	snprintf(comm->device, sizeof(comm->device), "%s", device);
	comm->slots = (uint32_t)config_int(CONFIG_SHM_SLOTS);
	if (comm->slots < 4 || comm->slots > 64 ||
	    (comm->slots & (comm->slots - 1)))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_SHM_SLOTS %u: not 4, 8, 16, 32 or 64",
			    comm->slots);
	comm->slot_mask = comm->slots - 1;
	comm->slot_bytes = (uint32_t)config_int(CONFIG_SHM_SLOT_BYTES);
	if (comm->slot_bytes < 4096 || comm->slot_bytes % 4096 ||
	    comm->slot_bytes > 1u << 24)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "DICOMM_SHM_SLOT_BYTES %u: not a multiple of 4096 "
			    "up to 16M",
			    comm->slot_bytes);
	comm->map_threshold = (uint64_t)config_int(CONFIG_SHM_MAP_THRESHOLD);
	return DICOMM_SUCCESS;
}

void comm_free(struct dicomm_comm *comm)
{
	if (!comm)
		return;
	if (comm->control)
		control_close(comm->control);
	refuge_close(comm->refuge);
	engine_free_spare(comm);
	executable_free_all(comm);
	for (int r = 0; comm->peers && r < comm->ranks; r++)
		if (comm->peers[r].tp)
			comm->peers[r].transport->peer_close(comm->peers[r].tp);
	for (size_t i = 0; i < COMM_WIRES; i++)
		if (comm->wires[i].device)
			comm->wires[i].transport->close(comm->wires[i].device);
	pthread_mutex_destroy(&comm->fault.lock);
	free((char *)(uintptr_t)comm->config.device);
	free((char *)(uintptr_t)comm->config.name);
	free((char *)(uintptr_t)comm->config.transports);
	free((char *)(uintptr_t)comm->config.staging);
	free(comm->peers);
	free(comm->members);
	free(comm->scratch);
	free(comm->send_log);
	free(comm->recv_log);
	comm->magic = 0;
	free(comm);
}

dicomm_result_t comm_create(struct dicomm_comm **out, int ranks, int rank,
			    const dicomm_config_t *config)
{
	struct dicomm_comm *comm;
	dicomm_result_t status;

	pthread_once(&process_once, process_init);
	if (ranks < 1)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: nranks %d: not positive", ranks);
	if (rank < 0 || rank >= ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: rank %d: not in 0 .. %d", rank,
			    ranks - 1);
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	pthread_mutex_init(&comm->fault.lock, NULL);
	comm->generation = atomic_load(&comm_generation);
	comm->rank = rank;
	comm->ranks = ranks;
	status = copy_config(comm, config);
	if (status == DICOMM_SUCCESS)
		status = apply_config(comm);
	if (status != DICOMM_SUCCESS)
		goto fail;
	comm->peers = calloc((size_t)ranks, sizeof(*comm->peers));
	comm->members = calloc((size_t)ranks, sizeof(*comm->members));
	comm->send_log = calloc(1, sizeof(*comm->send_log));
	comm->recv_log = calloc(1, sizeof(*comm->recv_log));
	if (!comm->peers || !comm->members || !comm->send_log ||
	    !comm->recv_log) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "comm_init_rank: no memory for %d ranks", ranks);
		goto fail;
	}
	comm->magic = COMM_MAGIC;
	*out = comm;
	return DICOMM_SUCCESS;

fail:
	comm_free(comm);
	return status;
}

/* ---- meeting ---- */

static void on_failed(void *ctx, dicomm_result_t status, int culprit,
		      const char *text)
{
	struct dicomm_comm *comm = ctx;

	fault_raise(comm, status, culprit, false, "%s", text);
}

static bool on_query(void *ctx, int peer, uint32_t class, uint64_t number,
		     uint32_t *signature, char *text, size_t len)
{
	const struct dicomm_comm *comm = ctx;

	switch (class) {
	case ASK_SEND:
		if (call_log_find(comm->send_log,
				  call_pair_number(peer, number), signature,
				  text, len))
			return true;
		break;
	case ASK_RECV:
		if (call_log_find(comm->recv_log,
				  call_pair_number(peer, number), signature,
				  text, len))
			return true;
		break;
	default:
		if (call_log_find(&comm->collective_log, number, signature,
				  text, len))
			return true;
	}
	if (atomic_load(&comm->state) < COMM_FINALIZING)
		return false;
	/* It will never be called. */
	*signature = 0;
	snprintf(text, len, "comm_finalize");
	return true;
}

/* Does the list of transports ("shm", "^shm,verbs"; empty: all) name it? */
static bool listed(const char *list, const char *name)
{
	bool exclude = *list == '^', found = false;
	size_t n = strlen(name);

	if (!*list)
		return true;
	for (const char *p = list + exclude; *p;) {
		size_t len = strcspn(p, ",");

		found |= len == n && !strncmp(p, name, n);
		p += len + (p[len] == ',');
	}
	return found != exclude;
}

static dicomm_result_t check_list(const char *list)
{
	for (const char *p = list + (*list == '^'); *p;) {
		size_t len = strcspn(p, ",");
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)len, p);
		if (!transport_find(name))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "transports %s: there is no transport %s "
				    "in this build",
				    list, name);
		p += len + (p[len] == ',');
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t open_wires(struct dicomm_comm *comm)
{
	const struct tp_config config = {.rank = comm->rank,
					 .ranks = comm->ranks,
					 .slots = comm->slots,
					 .slot_bytes = comm->slot_bytes};
	const char *list = comm->config.transports
				   ? comm->config.transports
				   : config_string(CONFIG_TRANSPORTS);
	struct member *me = &comm->members[comm->rank];
	char why[160];
	int opened = 0;

	TRY(check_list(list));
	for (size_t i = 0; transports[i] && i < COMM_WIRES; i++) {
		struct wire *w = &comm->wires[i];

		if (!listed(list, transports[i]->name))
			continue;
		if (!transports[i]->usable(why, sizeof(why))) {
			log_info("transport %s: not usable: %s",
				 transports[i]->name, why);
			continue;
		}
		TRY(transports[i]->open(&config, &w->device));
		w->transport = transports[i];
		w->transport->address(w->device, &me->address[i]);
		opened++;
	}
	if (!opened)
		return FAIL(DICOMM_ERR_NO_PATH,
			    "rank %d: no transport is usable%s%s", comm->rank,
			    *list ? " of " : "", list);
	return DICOMM_SUCCESS;
}

/* What ranks of one communicator must have in common. */
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
		if (m->slots != zero->slots ||
		    m->slot_bytes != zero->slot_bytes)
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "ranks disagree: rank 0 has %u slots of "
				    "%u bytes, rank %d has %u of %u",
				    zero->slots, zero->slot_bytes, r, m->slots,
				    m->slot_bytes);
		comm->node_ranks += m->host == comm->members[comm->rank].host;
	}
	return DICOMM_SUCCESS;
}

/* The id, or where the caller's all-gather stood for it, one of rank 0's
 * making that travelled the same way. */
static dicomm_result_t share_secret(struct dicomm_comm *comm,
				    const dicomm_unique_id_t *id)
{
	dicomm_unique_id_t *all, mine = {.text = ""};
	dicomm_result_t status;

	if (!comm->config.bootstrap.allgather) {
		comm->id = *id;
		return DICOMM_SUCCESS;
	}
	all = calloc((size_t)comm->ranks, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	if (comm->rank == 0)
		refuge_secret(mine.text, sizeof(mine.text));
	status = comm->config.bootstrap.allgather(&mine, all, sizeof(mine),
						  comm->config.bootstrap.ctx);
	comm->id = all[0];
	free(all);
	return status;
}

/* Everybody selects by the table of rank 0. */
static dicomm_result_t share_table(struct dicomm_comm *comm, int timeout_ms)
{
	struct select_table *all = calloc((size_t)comm->ranks, sizeof(*all));
	struct select_table mine;
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY, "comm_init_rank: no memory "
						  "for the tables");
	/* A bad DICOMM_ALGO is an error of every rank, not of rank 0 alone. */
	status = table_make(comm->node_ranks, comm->slot_bytes,
			    comm->deterministic, &mine);
	if (status != DICOMM_SUCCESS) {
		free(all);
		return status;
	}
	status = control_allgather(comm->control, &mine, all, sizeof(mine),
				   timeout_ms);
	comm->table = all[0];
	free(all);
	return status;
}

dicomm_result_t comm_meet(struct dicomm_comm *comm,
			  const dicomm_unique_id_t *id)
{
	int timeout_ms = (int)config_int(CONFIG_BOOTSTRAP_TIMEOUT) * 1000;
	struct member *me = &comm->members[comm->rank];
	struct control_config cc = {.rank = comm->rank,
				    .ranks = comm->ranks,
				    .id = id,
				    .timeout_ms = timeout_ms,
				    .cancelled = &comm->cancelled,
				    .events = {.failed = on_failed,
					       .query = on_query,
					       .ctx = comm}};
	uint64_t begin = clock_ns(), met;
	struct member mine;
	int64_t spin;

	if (comm->config.bootstrap.allgather) {
		cc.id = NULL;
		cc.allgather = comm->config.bootstrap.allgather;
		cc.allgather_ctx = comm->config.bootstrap.ctx;
	}
	TRY(control_open(&cc, &comm->control));
	met = clock_ns();
	TRY(share_secret(comm, id));
	TRY(open_wires(comm));
	TRY(refuge_open(&comm->refuge, me->refuge));
	me->host = node_identity();
	me->pid = getpid();
	me->deterministic = comm->deterministic;
	me->slots = comm->slots;
	me->slot_bytes = comm->slot_bytes;
	snprintf(me->device, sizeof(me->device), "%s", comm->device);
	mine = *me;
	TRY(control_allgather(comm->control, &mine, comm->members, sizeof(mine),
			      timeout_ms));
	TRY(compare_members(comm));
	comm->node_cores = node_cores();
	spin = config_is_default(CONFIG_SPIN) ? -1 : config_int(CONFIG_SPIN);
	if (spin >= 0)
		comm->spin = (unsigned)spin;
	else
		comm->spin = comm->node_ranks > comm->node_cores ? SPIN_SHARED
								 : SPIN_ALONE;
	comm->stream_bytes = node_cache_bytes();
	TRY(share_table(comm, timeout_ms));
	if (fault_is(comm))
		return fault_report(comm);
	log_info("%s rank %d of %d ready on %s: %d ranks on %d cores here; "
		 "met in %.1f ms, opened in %.1f ms",
		 comm->name, comm->rank, comm->ranks, comm->device,
		 comm->node_ranks, comm->node_cores,
		 (double)(met - begin) / 1e6, (double)(clock_ns() - met) / 1e6);
	atomic_store(&comm->state, COMM_READY);
	return DICOMM_SUCCESS;
}

/* ---- peers ---- */

dicomm_result_t comm_peer(struct dicomm_comm *comm, int rank, struct peer **out)
{
	struct peer *peer = &comm->peers[rank];
	char reasons[320] = "", why[160];
	size_t n = 0;

	*out = peer;
	if (peer->tp)
		return DICOMM_SUCCESS;
	for (size_t i = 0; i < COMM_WIRES; i++) {
		struct wire *w = &comm->wires[i];
		const struct tp_blob *address = &comm->members[rank].address[i];

		if (!w->device)
			continue;
		snprintf(why, sizeof(why), "rank %d does not use it", rank);
		if (address->len && w->transport->reaches(w->device, address,
							  why, sizeof(why))) {
			peer->rank = rank;
			TRY(w->transport->peer_open(w->device, rank, address,
						    &peer->tp));
			peer->transport = w->transport;
			comm->stats.connected_peers++;
			return DICOMM_SUCCESS;
		}
		if (n < sizeof(reasons))
			n += (size_t)snprintf(reasons + n, sizeof(reasons) - n,
					      "%s%s: %s", n ? "; " : "",
					      w->transport->name, why);
	}
	return FAIL(DICOMM_ERR_NO_PATH,
		    "no path from rank %d (%s) to rank %d (%s, %s): %s",
		    comm->rank, comm->device, rank, comm->members[rank].device,
		    control_where(comm->control, rank), reasons);
}

dicomm_result_t comm_connect_out(struct dicomm_comm *comm, struct peer *peer,
				 enum tp_class c)
{
	struct lane *lane = &peer->lane[c];
	struct waiter w = {0};
	struct tp_outbox out;
	dicomm_result_t status;
	uint64_t deadline =
		clock_ns() + (uint64_t)config_int(CONFIG_BOOTSTRAP_TIMEOUT) *
				     UINT64_C(1000000000);

	if (lane->released)
		return DICOMM_SUCCESS;
	while ((status = peer->transport->connect_out(peer->tp, c, &out)) ==
	       DICOMM_AGAIN) {
		if (fault_is(comm))
			return fault_report(comm);
		if (clock_ns() > deadline)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "connect to rank %d over %s: timed out",
				    peer->rank, peer->transport->name);
		wait_pause(comm, &w);
	}
	TRY(status);
	lane->released = out.released;
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_connect_in(struct dicomm_comm *comm, struct peer *peer,
				enum tp_class c)
{
	struct lane *lane = &peer->lane[c];
	struct tp_inbox in;

	(void)comm;
	TRY(peer->transport->connect_in(peer->tp, c, &in));
	lane->lines = in.lines;
	lane->data = in.data;
	/* Empty messages, which are never sent, have numbers and so credits. */
	peer->transport->release(peer->tp, c, lane->in_done);
	return DICOMM_SUCCESS;
}
