/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds out which ranks' devices reach each other's memory, which pairs must
 * stage, and whether they may.
 *
 * Devices of one kind on one machine map each other's memory. A rank sends from
 * staging buffers in its own device memory; kernels and copies of the other
 * rank read them there. These buffers are mapped when the communicator begins,
 * because a mapping at the time of a call could wait for a blocked stream.
 * Ranks of one process need no mapping: on one device they need no staging
 * buffers either, on two the driver must give peer access (in_process.h).
 * memory_ref.h says what hosts and devices share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/host/memory_table.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/member.h"
#include "src/device/device.h"
#include "src/device/neighbour.h"
#include "src/device/path.h"
#include "src/device/user_buffer.h"
#include "src/device/transport_access.h"
#include "src/links/cost_table.h"

/* Most different explanations that are listed. */
#define MAX_GROUPS 32

/* What all ranks know about peer access. */
struct peer_access {
	char why[128]; /* the first failure to map, in the driver's words */
	/* [a * ranks + b]: rank a maps the memory from which rank b sends */
	uint8_t mapped[];
};

static struct path_end end_of(const struct member *m)
{
	return (struct path_end){.device = m->device,
				 .host = m->host,
				 .pid = m->pid,
				 .on_host = m->on_host,
				 .exports = m->exports,
				 .shares_in_process = m->in_process != 0};
}

static bool may_map(const struct dicomm_comm *comm, int a, int b)
{
	struct path_end x = end_of(&comm->members[a]);
	struct path_end y = end_of(&comm->members[b]);

	return path_may_map(&x, &y);
}

/* Of two ends, returns the one with a device. Of two devices, returns the one
 * that fewer transports reach. */
static int less_wired(const struct dicomm_comm *comm, int a, int b)
{
	bool second = comm->members[a].on_host ||
		      (!comm->members[b].on_host &&
		       transport_access_mask(comm, a, a) &&
		       !transport_access_mask(comm, b, b));

	return second ? b : a;
}

bool peer_access_wants_transports(const struct dicomm_comm *comm)
{
	for (int a = 0; a < comm->ranks; a++)
		for (int b = 0; b < a; b++)
			if (!(comm->members[a].on_host &&
			      comm->members[b].on_host) &&
			    !may_map(comm, a, b))
				return true;
	return false;
}

static struct path_pair pair_of(const struct dicomm_comm *comm, int a, int b)
{
	size_t n = (size_t)comm->ranks, x = (size_t)a, y = (size_t)b;
	const uint8_t *mapped = comm->peer_access->mapped;
	int less = less_wired(comm, a, b);

	return (struct path_pair){
		.a = end_of(&comm->members[a]),
		.b = end_of(&comm->members[b]),
		.mapped = mapped[x * n + y] && mapped[y * n + x],
		.why_unmapped = comm->peer_access->why,
		.never = comm->members[a].never_staged ||
			 comm->members[b].never_staged,
		.wired = transport_access_mask(comm, a, b) != 0,
		.wiring = transport_access_how(comm, less),
		.wiring_of = comm->members[less].device};
}

static bool may_share(const struct dicomm_comm *comm, int a, int b)
{
	struct path_end x = end_of(&comm->members[a]);
	struct path_end y = end_of(&comm->members[b]);

	return path_may_share(&x, &y);
}

/* Returns true if may() is true for any pair whose first rank is in [from, to).
 * With all ranks in that range, all ranks get the same answer. */
static bool any_pair(const struct dicomm_comm *comm, int from, int to,
		     bool (*may)(const struct dicomm_comm *comm, int a, int b))
{
	for (int a = from; a < to; a++)
		for (int b = 0; b < comm->ranks; b++)
			if (may(comm, a, b))
				return true;
	return false;
}

/* A host rank also sends from its scratch. So scratch must be memory that
 * devices can map, before they look for it. */
static dicomm_result_t share_scratch(struct dicomm_comm *comm)
{
	void *scratch = NULL;

	TRY(accels[0]->alloc(0, DEVICE_SCRATCH, &scratch));
	comm->scratch.at = scratch;
	comm->scratch.bytes = DEVICE_SCRATCH;
	comm->scratch.shared = true;
	return DICOMM_SUCCESS;
}

/* Gather the lists of host memory ("boards") of host ranks that have a
 * neighbour with a device. */
static dicomm_result_t gather_boards(struct dicomm_comm *comm,
				     struct accel_export *boards)
{
	struct accel_export mine = {.id = 0};

	if (!any_pair(comm, 0, comm->ranks, may_share))
		return DICOMM_SUCCESS;
	if (!comm->dev &&
	    any_pair(comm, comm->rank, comm->rank + 1, may_share)) {
		TRY(share_scratch(comm));
		TRY(memory_table_export(&mine));
	}
	return control_allgather(comm->control, &mine, boards, sizeof(mine),
				 comm->join_ms);
}

/* References, and their releases, need a transport within the machine. Other
 * transports tell some senders of the release too late. */
static dicomm_result_t open_pair(struct dicomm_comm *comm, int rank,
				 const struct accel_export *board)
{
	unsigned mask = comm->ways[rank];

	if (mask && comm->transports[__builtin_ctz(mask)].transport->intra_node)
		return neighbour_open(comm, rank, board->id ? board : NULL);
	log_set_last_error(NO_LOCAL_TRANSPORT);
	return DICOMM_ERR_UNSUPPORTED;
}

/* Map the memory of all ranks that this rank may map. */
static dicomm_result_t open_all(struct dicomm_comm *comm,
				const struct accel_export *boards,
				struct peer_access *mine)
{
	dicomm_result_t status;

	if (comm->dev)
		TRY(device_streams_unblocked(comm));
	for (int r = 0; r < comm->ranks; r++) {
		if (!may_map(comm, comm->rank, r))
			continue;
		status = open_pair(comm, r, &boards[r]);
		mine->mapped[r] = status == DICOMM_SUCCESS;
		if (!mine->mapped[r] && !mine->why[0])
			snprintf(mine->why, sizeof(mine->why), "%s",
				 log_last_error());
	}
	if (comm->dev)
		streams_unblocked_end();
	return DICOMM_SUCCESS;
}

/* Map, and exchange the results with all ranks. */
static dicomm_result_t map_all(struct dicomm_comm *comm,
			       const struct accel_export *boards)
{
	size_t n = (size_t)comm->ranks;
	size_t bytes = sizeof(struct peer_access) + n;
	struct peer_access *mine, *all;
	dicomm_result_t status;

	if (!any_pair(comm, 0, comm->ranks, may_map))
		return DICOMM_SUCCESS;
	mine = calloc(n + 1, bytes);
	if (!mine)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	status = open_all(comm, boards, mine);
	if (status == DICOMM_SUCCESS)
		status = control_allgather(comm->control, mine,
					   (uint8_t *)mine + bytes,
					   (unsigned)bytes, comm->join_ms);
	for (size_t r = 0; status == DICOMM_SUCCESS && r < n; r++) {
		all = (struct peer_access *)((uint8_t *)mine + (r + 1) * bytes);
		memcpy(comm->peer_access->mapped + r * n, all->mapped, n);
		if (!comm->peer_access->why[0])
			memcpy(comm->peer_access->why, all->why,
			       sizeof(all->why));
	}
	free(mine);
	return status;
}

static dicomm_result_t refuse(const struct dicomm_comm *comm, int a, int b)
{
	const struct member *x = &comm->members[a], *y = &comm->members[b];
	struct path_pair p = pair_of(comm, a, b);
	char why[PATH_TEXT];

	path_why_not(&p, why, sizeof(why));
	return FAIL(DICOMM_ERR_NO_PATH,
		    "no direct path between rank %d (%s) and rank %d (%s): "
		    "%s; and rank %d has staging never",
		    a, x->device, b, y->device, why, x->never_staged ? a : b);
}

static void announce(const struct dicomm_comm *comm, int a, int b, int pairs)
{
	const struct member *x = &comm->members[a], *y = &comm->members[b];
	struct path_pair p = pair_of(comm, a, b);
	char why[PATH_TEXT];

	if (comm->rank != a)
		return;
	path_why_not(&p, why, sizeof(why));
	log_warn("%s: between rank %d (%s) and rank %d (%s)%s data passes "
		 "through host memory: %s (DICOMM_STAGING=never refuses that)",
		 comm->name, a, x->device, b, y->device,
		 pairs > 1 ? " and other pairs" : "", why);
}

static bool is_staged(const struct dicomm_comm *comm, int a, int b)
{
	struct path_pair p = pair_of(comm, a, b);

	return path_find(&p) == PATH_STAGED;
}

/* Check every pair that is staged. All ranks come to the same result. */
static dicomm_result_t decide(struct dicomm_comm *comm)
{
	int first = -1, second = -1, pairs = 0;

	for (int a = 0; a < comm->ranks; a++)
		for (int b = a + 1; b < comm->ranks; b++) {
			if (!is_staged(comm, a, b))
				continue;
			if (comm->members[a].never_staged ||
			    comm->members[b].never_staged)
				return refuse(comm, a, b);
			if (pairs++)
				continue;
			first = a;
			second = b;
		}
	if (pairs)
		announce(comm, first, second, pairs);
	return DICOMM_SUCCESS;
}

/* Slice size between ranks that read each other's buffers. Longer slices would
 * overlap less and gain nothing: a GPU reads one in some microseconds and
 * starts a kernel in about 3. */
#define IN_PROCESS_SLICE_BYTES ((uint32_t)16 << 20)

/* If all ranks are of one process and device, they read each other's
 * buffers, and no staging buffer has to hold a slice. A size that the user
 * chose is kept. */
static void size_slices_in_process(struct dicomm_comm *comm)
{
	for (int r = 1; r < comm->ranks; r++)
		if (comm->members[r].pid != comm->members[0].pid ||
		    strcmp(comm->members[r].device, comm->members[0].device))
			return;
	comm->slice_bytes = config_is_default(CONFIG_SHM_SLOT_BYTES)
				    ? IN_PROCESS_SLICE_BYTES
				    : comm->slot_bytes;
	cost_table_in_process(&comm->table, comm->ranks, comm->slice_bytes);
}

/* If all messages are references to device memory, slices may be as long as the
 * staging buffers there. All ranks see the same pairs. */
static void lengthen(struct dicomm_comm *comm)
{
	for (int a = 0; a < comm->ranks; a++)
		for (int b = 0; b < comm->ranks; b++) {
			struct path_pair p = pair_of(comm, a, b);

			if (path_find(&p) != PATH_IPC)
				return;
		}
	size_slices_in_process(comm);
	if (comm->slot_bytes < DEVICE_EXPORTED_BYTES)
		comm->slot_bytes = DEVICE_EXPORTED_BYTES;
	comm->table.params.slot_bytes = comm->slot_bytes;
}

static bool all_on_host(const struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (!comm->members[r].on_host)
			return false;
	return true;
}

dicomm_result_t peer_access_agree(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	struct accel_export *boards;
	dicomm_result_t status;

	/* All data is in host memory, so no pair has to be examined. */
	if (all_on_host(comm))
		return DICOMM_SUCCESS;
	comm->peer_access = calloc(1, sizeof(*comm->peer_access) + n * n);
	if (!comm->peer_access)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %zu ranks", n);
	boards = calloc(n, sizeof(*boards));
	if (!boards)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %zu ranks", n);
	status = gather_boards(comm, boards);
	if (status == DICOMM_SUCCESS)
		status = map_all(comm, boards);
	free(boards);
	if (status == DICOMM_SUCCESS)
		status = transport_access_agree(comm);
	if (status == DICOMM_SUCCESS)
		status = decide(comm);
	if (status == DICOMM_SUCCESS)
		lengthen(comm);
	for (int r = 0; status == DICOMM_SUCCESS && r < comm->ranks; r++) {
		struct path_pair p = pair_of(comm, comm->rank, r);
		enum path path = path_find(&p);

		comm->peers[r].staged = path == PATH_STAGED;
		/* Both directions of a pair take the same path. */
		comm->peers[r].has_peer_access =
			path == PATH_IPC || path == PATH_MAPPED;
		comm->peers[r].by_reference = path == PATH_RDMA;
		if (path == PATH_RDMA)
			comm->ways[r] =
				transport_access_mask(comm, comm->rank, r);
		comm->shares |= path == PATH_MAPPED;
		comm->only_shared |= path == PATH_MAPPED &&
				     (comm->members[r].never_staged ||
				      comm->members[comm->rank].never_staged);
	}
	return status == DICOMM_SUCCESS ? user_buffer_open(comm) : status;
}

/* Pairs with the same explanation. a and b are the first of them. */
struct pair_group {
	int a, b, pairs;
	char text[PATH_TEXT];
};

static void tell(struct pair_group *groups, int *n, const struct path_pair *p,
		 int a, int b)
{
	char text[PATH_TEXT];
	int i = 0;

	path_explain(p, text, sizeof(text));
	while (i < *n && strcmp(groups[i].text, text))
		i++;
	if (i == MAX_GROUPS)
		return;
	if (i == *n) {
		groups[i] = (struct pair_group){.a = a, .b = b};
		memcpy(groups[i].text, text, sizeof(text));
		(*n)++;
	}
	groups[i].pairs++;
}

dicomm_result_t peer_access_explain(const struct dicomm_comm *comm, char *text,
				    size_t len)
{
	struct pair_group *groups;
	int n = 0;
	size_t at;

	if (!comm->peer_access || !len)
		return DICOMM_SUCCESS;
	groups = calloc(MAX_GROUPS, sizeof(*groups));
	if (!groups)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_explain: out of memory");
	for (int a = 0; a < comm->ranks; a++)
		for (int b = a + 1; b < comm->ranks; b++) {
			struct path_pair p = pair_of(comm, a, b);

			tell(groups, &n, &p, a, b);
		}
	at = (size_t)snprintf(text, len, "paths between devices\n");
	for (int i = 0; i < n && at < len; i++) {
		const struct pair_group *t = &groups[i];
		char more[32] = "";

		if (t->pairs > 1)
			snprintf(more, sizeof(more), " and %d like them",
				 t->pairs - 1);
		at += (size_t)snprintf(text + at, len - at,
				       "  rank %d (%s), rank %d (%s)%s: %s\n",
				       t->a, comm->members[t->a].device, t->b,
				       comm->members[t->b].device, more,
				       t->text);
	}
	if (at < len)
		user_buffer_explain(comm, text + at, len - at);
	free(groups);
	return DICOMM_SUCCESS;
}
