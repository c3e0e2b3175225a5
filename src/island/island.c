/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks are in which island, and the life of the vendor's communicators.
 */
#include "src/island/island.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/core/fault.h"
#include "src/core/member.h"
#include "src/island/hold.h"

const char *island_wish(const struct dicomm_comm *comm)
{
	return comm->config.island ? comm->config.island
				   : config_string(CONFIG_ISLAND);
}

/* ---- who is where ---- */

/* "cuda" of "cuda:0" */
static size_t kind_length(const char *device)
{
	return strcspn(device, ":");
}

static bool are_together(const struct member *a, const struct member *b)
{
	size_t n = kind_length(a->device);

	return a->host == b->host && n == kind_length(b->device) &&
	       !strncmp(a->device, b->device, n);
}

static void find_islands(struct island *is)
{
	const struct member *m = is->comm->members;
	uint32_t n = (uint32_t)is->comm->ranks;

	for (uint32_t r = 0; r < n; r++) {
		uint32_t q = 0;

		while (!are_together(&m[q], &m[r]))
			q++;
		is->of[r] = q == r ? is->islands++ : is->of[q];
		is->index[r] = is->size[is->of[r]]++;
	}
	for (uint32_t i = 1; i < is->islands; i++)
		is->first[i] = is->first[i - 1] + is->size[i - 1];
	is->equal = true;
	for (uint32_t i = 0; i < is->islands; i++) {
		is->equal &= is->size[i] == is->size[0];
		if (is->size[i] > is->pieces)
			is->pieces = is->size[i];
	}
	for (uint32_t r = 0; r < n; r++)
		is->rank[is->first[is->of[r]] + is->index[r]] = r;
	is->mine = is->of[is->comm->rank];
	is->consecutive = true;
	for (uint32_t r = 0; r < n; r++)
		is->consecutive &=
			is->rank[is->first[is->of[r]]] + is->index[r] == r;
}

static dicomm_result_t find_owners(struct island *is)
{
	uint32_t number = is->index[is->comm->rank];
	uint32_t *of = calloc(is->islands, sizeof(*of));
	struct links *links = NULL;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!of)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	for (uint32_t i = 0; i < is->islands; i++)
		of[i] = island_owner(is, i, number);
	if (is->comm->links)
		status = links_part(is->comm->links, is->islands, of, &links);
	is->owners = (struct call_group){.rank = (int)is->mine,
					 .ranks = (int)is->islands,
					 .of = of,
					 .links = links};
	return status;
}

/* ---- the vendor's communicator ---- */

/* What a rank tells the others before its island begins. */
struct offer {
	int32_t status;      /* can it take part? */
	struct vendor_id id; /* of the first rank of an island */
	char why[200];       /* if it cannot */
};

static void refuse(struct offer *o, dicomm_result_t status, const char *why)
{
	o->status = (int32_t)status;
	snprintf(o->why, sizeof(o->why), "%s", why);
}

static const char *kind_of(const struct dicomm_comm *comm, char kind[32])
{
	snprintf(kind, 32, "%.*s", (int)kind_length(comm->device),
		 comm->device);
	return kind;
}

/* Opens the library, unless this rank is alone in its island. */
static void prepare(struct island *is, struct offer *o)
{
	const char *wish = island_wish(is->comm);
	char kind[32], why[200];

	if (is->size[is->mine] == 1)
		return;
	kind_of(is->comm, kind);
	if ((!strcmp(wish, "nccl") && !strcmp(kind, "hip")) ||
	    (!strcmp(wish, "rccl") && !strcmp(kind, "cuda"))) {
		snprintf(why, sizeof(why), "%s is not for ranks of kind %s",
			 wish, kind);
		refuse(o, DICOMM_ERR_INVALID_USAGE, why);
		return;
	}
	is->library = island_library_open(
		kind, config_string(CONFIG_ISLAND_LIBRARY), why, sizeof(why));
	if (!is->library) {
		refuse(o, DICOMM_ERR_UNSUPPORTED, why);
		return;
	}
	if (!is->index[is->comm->rank] &&
	    is->library->f.get_unique_id(&o->id) != VENDOR_SUCCESS)
		refuse(o, DICOMM_ERR_SYSTEM, "ncclGetUniqueId failed");
}

/* All ranks hear why the first of those cannot that cannot. With "auto" they go
 * on without islands. */
static dicomm_result_t agree(struct island *is, const struct offer *offers)
{
	struct dicomm_comm *comm = is->comm;
	int r = 0;

	while (r < comm->ranks && offers[r].status == DICOMM_SUCCESS)
		r++;
	if (r == comm->ranks)
		return DICOMM_SUCCESS;
	snprintf(is->why, sizeof(is->why), "rank %d: %.*s", r,
		 (int)sizeof(offers[r].why) - 1, offers[r].why);
	if (!strcmp(island_wish(comm), "auto")) {
		log_info("%s rank %d: no vendor islands: %s", comm->name,
			 comm->rank, is->why);
		return DICOMM_SUCCESS;
	}
	return FAIL((dicomm_result_t)offers[r].status, "DICOMM_ISLAND %s: %s",
		    island_wish(comm), is->why);
}

static dicomm_result_t exchange(struct island *is, struct offer *mine,
				struct offer *all)
{
	return control_allgather(is->comm->control, mine, all, sizeof(*mine),
				 is->comm->join_ms);
}

static void begin_vendor(struct island *is, const struct offer *offers,
			 struct offer *mine)
{
	struct vendor_config config = {.size = sizeof(config),
				       .magic = VENDOR_CONFIG_MAGIC,
				       .version = VENDOR_CONFIG_VERSION,
				       .blocking = 0};
	uint32_t first = is->rank[is->first[is->mine]];
	struct vendor_comm *vendor = NULL;
	dicomm_result_t status;
	int result;

	memset(mine, 0, sizeof(*mine));
	if (!is->library)
		return;
	result = is->library->f.init(&vendor, (int)is->size[is->mine],
				     offers[first].id,
				     (int)is->index[is->comm->rank], &config);
	is->vendor = vendor;
	status = island_settle(is, vendor, result, "ncclCommInitRankConfig",
			       is->comm->join_ms);
	if (status != DICOMM_SUCCESS)
		refuse(mine, status, log_last_error());
}

static void *watch(void *arg)
{
	struct island *is = arg;
	struct vendor_comm *vendor;

	for (;;) {
		while (sem_wait(&is->broken))
			;
		if (is->closing || fault_is(is->comm))
			break;
	}
	/* On the host its functions block, and are ended by this. */
	if (is->comm->dev)
		pthread_mutex_lock(&is->lock);
	if (!is->closing && (vendor = atomic_exchange(&is->vendor, NULL)))
		is->library->f.abort(vendor);
	if (is->comm->dev)
		pthread_mutex_unlock(&is->lock);
	return NULL;
}

static void on_broken(struct dicomm_comm *comm)
{
	sem_post(&comm->island->broken);
}

bool island_is_inside(const struct dicomm_comm *comm)
{
	return island_hold_has(comm) ||
	       (comm->island && atomic_load(&comm->island->caller) ==
					__builtin_thread_pointer());
}

static dicomm_result_t start_thread(struct island *is)
{
	int error;

	if (!is->vendor)
		return DICOMM_SUCCESS;
	error = thread_start(&is->thread, "dicomm-island", watch, is);
	if (error)
		return FAIL(DICOMM_ERR_SYSTEM, "island: create a thread: %s",
			    strerror(error));
	is->has_thread = true;
	is->comm->on_broken = on_broken;
	/* It may have broken before. */
	if (fault_is(is->comm))
		on_broken(is->comm);
	return DICOMM_SUCCESS;
}

static dicomm_result_t form(struct island *is)
{
	struct dicomm_comm *comm = is->comm;
	struct offer *offers = calloc((size_t)comm->ranks, sizeof(*offers));
	struct offer mine;
	dicomm_result_t status;

	if (!offers)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	memset(&mine, 0, sizeof(mine));
	prepare(is, &mine);
	status = exchange(is, &mine, offers);
	if (status == DICOMM_SUCCESS)
		status = agree(is, offers);
	if (status == DICOMM_SUCCESS && !*is->why) {
		begin_vendor(is, offers, &mine);
		status = exchange(is, &mine, offers);
		if (status == DICOMM_SUCCESS)
			status = agree(is, offers);
	}
	free(offers);
	if (status == DICOMM_SUCCESS && !*is->why && is->equal)
		status = find_owners(is);
	if (status == DICOMM_SUCCESS && !*is->why)
		status = island_parts_open(&is->parts, is->comm);
	if (status == DICOMM_SUCCESS && !*is->why)
		status = start_thread(is);
	if (status == DICOMM_SUCCESS && !*is->why)
		status = island_compare(is);
	comm->has_islands = status == DICOMM_SUCCESS && !*is->why;
	return status;
}

static dicomm_result_t allocate(struct dicomm_comm *comm)
{
	size_t n = (size_t)comm->ranks;
	struct island *is = calloc(1, sizeof(*is));

	if (!is)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	pthread_mutex_init(&is->calls, NULL);
	pthread_mutex_init(&is->lock, NULL);
	sem_init(&is->broken, 0, 0);
	is->comm = comm;
	comm->island = is;
	is->of = calloc(n, sizeof(*is->of));
	is->index = calloc(n, sizeof(*is->index));
	is->size = calloc(n, sizeof(*is->size));
	is->rank = calloc(n, sizeof(*is->rank));
	is->first = calloc(n, sizeof(*is->first));
	if (!is->of || !is->index || !is->size || !is->rank || !is->first)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "island: no memory for %d ranks", comm->ranks);
	return DICOMM_SUCCESS;
}

dicomm_result_t island_open(struct dicomm_comm *comm)
{
	struct island *is;

	if (!strcmp(island_wish(comm), "off"))
		return DICOMM_SUCCESS;
	TRY(allocate(comm));
	is = comm->island;
	find_islands(is);
	if (comm->deterministic)
		snprintf(is->why, sizeof(is->why), "deterministic mode");
	else if (is->islands == (uint32_t)comm->ranks)
		snprintf(is->why, sizeof(is->why),
			 "no host has two ranks of one kind");
	return *is->why ? DICOMM_SUCCESS : form(is);
}

void island_finalize(struct dicomm_comm *comm)
{
	struct island *is = comm->island;
	dicomm_result_t status = DICOMM_SUCCESS;
	int result;

	if (!is || is->finalized || fault_is(comm))
		return;
	if (comm->dev)
		pthread_mutex_lock(&is->lock);
	if (is->vendor) {
		result = is->library->f.finalize(is->vendor);
		status = island_settle(is, is->vendor, result,
				       "ncclCommFinalize",
				       atomic_load(&comm->timeout_ms));
		is->finalized = status == DICOMM_SUCCESS;
	}
	if (comm->dev)
		pthread_mutex_unlock(&is->lock);
	/* What others of the island wait for will not come. */
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		fault_own(comm, status, -1);
}

static void end_vendor(struct island *is)
{
	if (is->has_thread) {
		is->closing = true;
		sem_post(&is->broken);
		pthread_join(is->thread, NULL);
	}
	if (is->vendor && is->finalized)
		is->library->f.destroy(is->vendor);
	else if (is->vendor)
		is->library->f.abort(is->vendor);
	island_parts_close(&is->parts);
	island_free_scratch(is);
}

void island_close(struct dicomm_comm *comm)
{
	struct island *is = comm->island;

	if (!is)
		return;
	end_vendor(is);
	comm->on_broken = NULL;
	comm->island = NULL;
	free((void *)(uintptr_t)is->owners.of);
	links_free((struct links *)(uintptr_t)is->owners.links);
	free(is->of);
	free(is->index);
	free(is->size);
	free(is->rank);
	free(is->first);
	sem_destroy(&is->broken);
	pthread_mutex_destroy(&is->lock);
	pthread_mutex_destroy(&is->calls);
	free(is);
}
