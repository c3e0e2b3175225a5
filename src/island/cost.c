/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From how many bytes on islands are faster. The vendor's library is measured
 * at init, with a short and a long message; the part between islands, and what
 * this library would do by itself, are predicted from the links. Integers only,
 * of what all ranks have exchanged, so all of them find the same.
 */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/device/device.h"
#include "src/island/island.h"
#include "src/memory/blocked_streams.h"

#define SHORT_BYTES (UINT64_C(64) << 10)
#define LONG_BYTES (UINT64_C(4) << 20)
#define REPEATS 3
/* A measurement that takes longer counts as never. */
#define MEASURE_MS 5000
/* The first of ISLAND_SIZES that are compared */
#define FIRST_BYTES (UINT64_C(16) << 10)
/* Longest part where nothing has been measured */
#define PART_BYTES (UINT64_C(4) << 20)
/* Of what the vendor's library has of an all-to-all at a time, unless it is
 * set: long enough that its start does not count */
#define EXCHANGE_BYTES (UINT64_C(64) << 20)
#define NEVER_NS (UINT64_C(1) << 50)

/* Of what is measured by the vendor's library: a reduce-scatter and an
 * all-gather; sends of an all-to-all */
enum { COLLECT, EXCHANGE, MEASURED };
struct island_times {
	uint64_t short_ns, long_ns;
};

/* The device's default stream, on which a measurement waits; NULL: host */
struct gauge {
	struct island *is;
	struct accel_stream *stream;
	struct accel_event *event;
	uint8_t *send, *recv;
	bool exchanges; /* what is measured */
};

static dicomm_result_t await(const struct gauge *g)
{
	const struct accel_work *work = g->is->comm->accel->work;
	uint64_t end = clock_ms() + MEASURE_MS;
	dicomm_result_t status;

	if (!work)
		return DICOMM_SUCCESS;
	TRY(work->event_record(g->event, g->stream));
	while ((status = work->event_query(g->event)) == DICOMM_AGAIN)
		if (fault_is(g->is->comm) || clock_ms() > end)
			return DICOMM_ERR_TIMEOUT;
	return status;
}

static bool queue(const struct gauge *g, struct vendor_comm *vendor,
		  uint64_t bytes)
{
	struct island *is = g->is;
	const struct vendor_functions *f = &is->library->f;
	uint32_t me = is->index[is->comm->rank];
	size_t n = bytes / 4 / is->size[is->mine];
	int result;

	result = f->reduce_scatter(g->send, g->recv + me * n * 4, n,
				   DICOMM_FLOAT32, DICOMM_SUM, vendor, NULL);
	if (island_settle(is, vendor, result, "ncclReduceScatter",
			  MEASURE_MS) != DICOMM_SUCCESS)
		return false;
	result = f->allgather(g->recv + me * n * 4, g->recv, n, DICOMM_FLOAT32,
			      vendor, NULL);
	return island_settle(is, vendor, result, "ncclAllGather", MEASURE_MS) ==
	       DICOMM_SUCCESS;
}

static bool queue_exchange(const struct gauge *g, struct vendor_comm *vendor,
			   uint64_t bytes)
{
	struct island *is = g->is;
	const struct vendor_functions *f = &is->library->f;
	uint32_t size = is->size[is->mine];
	size_t n = bytes / size;
	int result = f->group_start(), ended;

	for (uint32_t m = 0; m < size && result == VENDOR_SUCCESS; m++) {
		if (m == is->index[is->comm->rank])
			continue;
		result = f->send(g->send + m * n, n, DICOMM_UINT8, (int)m,
				 vendor, NULL);
		if (result == VENDOR_SUCCESS)
			result = f->recv(g->recv + m * n, n, DICOMM_UINT8,
					 (int)m, vendor, NULL);
	}
	ended = f->group_end();
	return island_settle(is, vendor,
			     result == VENDOR_SUCCESS ? ended : result,
			     "ncclSend", MEASURE_MS) == DICOMM_SUCCESS;
}

/* Returns true if it is done; otherwise it is not to be chosen. */
static bool run(const struct gauge *g, uint64_t bytes)
{
	struct island *is = g->is;
	struct vendor_comm *vendor;
	bool good;

	/* As in operations.c: the thread of the island aborts. */
	if (is->comm->dev)
		pthread_mutex_lock(&is->lock);
	vendor = is->vendor;
	good = vendor && !fault_is(is->comm) &&
	       (g->exchanges ? queue_exchange : queue)(g, vendor, bytes);
	if (is->comm->dev)
		pthread_mutex_unlock(&is->lock);
	return good && await(g) == DICOMM_SUCCESS;
}

/* The first time, the vendor's library may connect its ranks. */
static uint64_t measure(const struct gauge *g, uint64_t bytes)
{
	uint64_t least = NEVER_NS, begin, took;

	for (int i = 0; i <= REPEATS; i++) {
		begin = clock_ns();
		if (!run(g, bytes))
			return NEVER_NS;
		took = clock_ns() - begin;
		if (i && took < least)
			least = took;
	}
	return least;
}

static bool make_gauge(struct gauge *g)
{
	const struct dicomm_comm *comm = g->is->comm;
	const struct accel *accel = comm->accel;
	void *send = NULL, *recv = NULL;
	bool good =
		accel->alloc(comm->index, LONG_BYTES, &send) ==
			DICOMM_SUCCESS &&
		accel->alloc(comm->index, LONG_BYTES, &recv) == DICOMM_SUCCESS;

	g->send = send;
	g->recv = recv;
	if (!good || !accel->work)
		return good;
	return accel->work->open(comm->index, NULL, &g->stream) ==
		       DICOMM_SUCCESS &&
	       accel->work->event_create(comm->index, &g->event) ==
		       DICOMM_SUCCESS;
}

static bool open_gauge(struct gauge *g)
{
	struct dicomm_comm *comm = g->is->comm;
	bool good;

	if (!comm->dev)
		return make_gauge(g);
	if (device_streams_unblocked(comm) != DICOMM_SUCCESS)
		return false;
	good = make_gauge(g);
	streams_unblocked_end();
	return good;
}

static void close_gauge(struct gauge *g)
{
	const struct dicomm_comm *comm = g->is->comm;

	if (g->event)
		comm->accel->work->event_destroy(g->event);
	if (g->stream)
		comm->accel->work->close(g->stream);
	if (g->send)
		island_free(comm, g->send);
	if (g->recv)
		island_free(comm, g->recv);
}

/* One round: each rank shows the others its time, and learns the longest. */
static dicomm_result_t agree(struct dicomm_comm *comm, uint64_t *ns)
{
	uint64_t *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t status;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	status = control_allgather(comm->control, ns, all, sizeof(*ns),
				   comm->join_ms);
	for (int r = 0; status == DICOMM_SUCCESS && r < comm->ranks; r++)
		if (all[r] > *ns)
			*ns = all[r];
	free(all);
	return status;
}

/* What a rank has queued may not end, and then no memory of it can be freed
 * before the vendor's communicator has ended. */
static void give_up(struct island *is)
{
	struct vendor_comm *vendor;

	pthread_mutex_lock(&is->lock);
	vendor = atomic_exchange(&is->vendor, NULL);
	if (vendor)
		is->library->f.abort(vendor);
	pthread_mutex_unlock(&is->lock);
	snprintf(is->why, sizeof(is->why),
		 "the vendor's library was not done within %d ms", MEASURE_MS);
}

static dicomm_result_t measure_both(struct gauge *g, struct island_times *t)
{
	struct island *is = g->is;
	struct dicomm_comm *comm = is->comm;

	*t = (struct island_times){0, 0};
	if (is->library)
		t->short_ns = measure(g, SHORT_BYTES);
	TRY(agree(comm, &t->short_ns));
	if (is->library && t->short_ns != NEVER_NS)
		t->long_ns = measure(g, LONG_BYTES);
	TRY(agree(comm, &t->long_ns));
	if (t->short_ns == NEVER_NS || t->long_ns == NEVER_NS)
		give_up(is);
	return DICOMM_SUCCESS;
}

/* All ranks go from step to step together: a rank that went on alone would call
 * something else than the others of its island. */
static dicomm_result_t measure_all(struct gauge *g, struct island_times *t)
{
	struct island *is = g->is;
	struct dicomm_comm *comm = is->comm;
	uint64_t opened = 0;

	if (is->library && !open_gauge(g))
		opened = NEVER_NS;
	TRY(agree(comm, &opened));
	if (opened == NEVER_NS) {
		snprintf(is->why, sizeof(is->why),
			 "no memory to measure the vendor's library");
		return DICOMM_SUCCESS;
	}
	for (int i = 0; i < MEASURED && !*is->why; i++) {
		g->exchanges = i == EXCHANGE;
		TRY(measure_both(g, &t[i]));
	}
	return DICOMM_SUCCESS;
}

/* The time of the slowest island for so many bytes */
static uint64_t inside_ns(const struct island *is,
			  const struct island_times *measured, enum coll coll,
			  uint64_t bytes)
{
	bool half = coll == COLL_REDUCE_SCATTER || coll == COLL_ALLGATHER;
	const struct island_times *t =
		&measured[coll == COLL_ALLTOALL ? EXCHANGE : COLLECT];
	uint64_t ns = t->short_ns;

	/* What is for other islands stays out. */
	if (coll == COLL_ALLTOALL)
		bytes = bytes / (uint64_t)is->comm->ranks * is->pieces;
	if (bytes > SHORT_BYTES && t->long_ns > t->short_ns) {
		uint64_t ps_per_kib = (t->long_ns - t->short_ns) * 1000 /
				      ((LONG_BYTES - SHORT_BYTES) / 1024);

		ns += (bytes - SHORT_BYTES) / 1024 * ps_per_kib / 1000;
	}
	return half ? ns / 2 : ns;
}

/* The longer buffer of an all-to-all among one rank of each island that sends
 * as much from island to island as all ranks do, between the largest two */
static uint64_t bytes_between(const struct island *is, uint64_t bytes)
{
	uint32_t largest = 0, second = 0;

	for (uint32_t i = 0; i < is->islands; i++) {
		uint32_t size = is->size[i];

		if (size > largest) {
			second = largest;
			largest = size;
		} else if (size > second) {
			second = size;
		}
	}
	return bytes / (uint64_t)is->comm->ranks * largest * second *
	       is->islands;
}

/* The bytes of one owner of a piece that take its link as long as those of all
 * owners of its host take that together. */
static uint64_t bytes_on_link(const struct island *is, uint64_t bytes)
{
	const struct links *l = is->comm->links;
	uint64_t piece = bytes / is->pieces, most = piece;

	for (uint32_t i = 0; l && i < is->islands; i++) {
		uint32_t node = l->node_of[island_owner(is, i, 0)];
		const struct links_class *c = links_node(l, node);
		uint64_t all = links_slower(c->nic.up, c->nic.down);
		uint64_t one = links_slower(all, c->rank);
		uint64_t ranks = links_slower(all, c->rank * is->size[i]);
		uint64_t share = (one >> 10) * 1024 / ((ranks >> 10) + 1);

		if (bytes / 1024 * share > most)
			most = bytes / 1024 * share;
	}
	return most;
}

static dicomm_result_t predict(const struct island *is, const struct shape *s,
			       uint64_t bytes, uint64_t *ns)
{
	const struct select_table *table = &is->comm->table;
	const struct algorithm *a;
	dicomm_result_t status;
	uint64_t ps;

	/* DICOMM_ALGO may leave only algorithms of short messages, on all ranks
	 * alike. */
	*ns = NEVER_NS;
	log_demote(true);
	status = select_algorithm(table, s, bytes, &a);
	log_demote(false);
	if (status == DICOMM_ERR_INVALID_USAGE)
		return DICOMM_SUCCESS;
	TRY(status);
	TRY(select_predict(table, s, bytes, a, &ps));
	*ns = ps / 1000;
	return DICOMM_SUCCESS;
}

/* Number `nth` of the sizes that are compared */
static uint64_t size_of(int nth)
{
	return FIRST_BYTES << (2 * nth);
}

/* Parts of a collective of one of the sizes; [nth]: each of that size */
struct part_times {
	uint64_t inside[ISLAND_SIZES], between[ISLAND_SIZES];
};

/* The first part's times inside and between islands, and the longer of the two
 * for each further one. In an all-to-all, neither waits for the other. */
static uint64_t in_parts_ns(const struct part_times *t, enum coll coll,
			    int size, int part)
{
	uint64_t in = t->inside[part], out = t->between[part];
	uint64_t more = (UINT64_C(1) << (2 * (size - part))) - 1;

	if (coll == COLL_ALLTOALL)
		return in > out ? in : out;
	return in + out + more * (in > out ? in : out);
}

static dicomm_result_t predict_parts(const struct island *is,
				     const struct island_times *t,
				     const struct links *between,
				     enum coll coll, struct part_times *parts)
{
	struct shape owners = {.coll = coll,
			       .rank = (int)is->mine,
			       .ranks = (int)is->islands,
			       .root = coll_rooted(coll) ? 0 : -1,
			       .links = between};

	for (int i = 0; i < ISLAND_SIZES; i++) {
		uint64_t bytes = size_of(i);

		parts->inside[i] = inside_ns(is, t, coll, bytes);
		if (coll == COLL_ALLTOALL)
			bytes = bytes_between(is, bytes);
		TRY(predict(is, &owners, bytes_on_link(is, bytes),
			    &parts->between[i]));
	}
	return DICOMM_SUCCESS;
}

/* The sizes of parts that calls of a size may be cut into, also if that is
 * set */
static void find_choice(enum coll coll, int size, int *least, int *most)
{
	int64_t set = config_int(CONFIG_ISLAND_PART_BYTES);

	*least = 0;
	while (UINT64_C(1) << (2 * (size - *least)) > ISLAND_CALL_PARTS)
		++*least;
	*most = size;
	if (coll == COLL_ALLTOALL)
		*least = size;
	if (set < 0)
		return;
	while (set && *most > *least && size_of(*most) > (uint64_t)set)
		--*most;
	*least = *most;
}

/* Is a size faster than without islands, in the best of parts? */
static dicomm_result_t is_faster(struct island *is, const struct part_times *t,
				 enum coll coll, int size, bool *faster)
{
	struct shape flat = {.coll = coll,
			     .rank = is->comm->rank,
			     .ranks = is->comm->ranks,
			     .root = coll_rooted(coll) ? 0 : -1,
			     .links = is->comm->links};
	uint64_t own, best = UINT64_MAX, ns;
	int part = size, least, most;

	TRY(predict(is, &flat, size_of(size), &own));
	find_choice(coll, size, &least, &most);
	for (int i = most; i >= least; i--) {
		ns = in_parts_ns(t, coll, size, i);
		if (ns < best) {
			best = ns;
			part = i;
		}
	}
	*faster = best < own;
	if (*faster && part < size)
		is->part_bytes[coll][size] = size_of(part);
	log_debug("island: %s of %llu bytes: %llu ns in parts of %llu (%llu "
		  "inside, %llu between), %llu without islands",
		  coll_name(coll), (unsigned long long)size_of(size),
		  (unsigned long long)best, (unsigned long long)size_of(part),
		  (unsigned long long)t->inside[part],
		  (unsigned long long)t->between[part],
		  (unsigned long long)own);
	return DICOMM_SUCCESS;
}

/* The least size from which each one that was compared is faster */
static dicomm_result_t find_least(struct island *is,
				  const struct island_times *t,
				  const struct links *between, enum coll coll)
{
	struct part_times parts;
	bool faster = true;

	is->least[coll] = UINT64_MAX;
	TRY(predict_parts(is, t, between, coll, &parts));
	for (int i = ISLAND_SIZES - 1; faster && i >= 0; i--) {
		TRY(is_faster(is, &parts, coll, i, &faster));
		if (faster)
			is->least[coll] = size_of(i);
	}
	return DICOMM_SUCCESS;
}

uint64_t island_part_bytes(const struct island *is, enum coll coll,
			   uint64_t bytes)
{
	int i = 0;

	while (i + 1 < ISLAND_SIZES && size_of(i + 1) <= bytes)
		i++;
	return is->part_bytes[coll][i];
}

/* The same for all */
static void set_parts(struct island *is, uint64_t bytes)
{
	for (int c = 0; c < COLL_KINDS; c++)
		for (int i = 0; i < ISLAND_SIZES; i++)
			is->part_bytes[c][i] = bytes;
}

static dicomm_result_t find_all(struct island *is, const struct island_times *t)
{
	uint32_t *of = calloc(is->islands, sizeof(*of));
	struct links *between = NULL;
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!of)
		return FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
	for (uint32_t i = 0; i < is->islands; i++)
		of[i] = island_owner(is, i, 0);
	if (is->comm->links)
		status = links_part(is->comm->links, is->islands, of, &between);
	for (enum coll c = 0; c <= COLL_ALLTOALL && status == DICOMM_SUCCESS;
	     c++)
		status = find_least(is, t, between, c);
	is->least[COLL_ALLTOALLV] = is->least[COLL_ALLTOALL];
	links_free(between);
	free(of);
	return status;
}

static dicomm_result_t compare(struct island *is)
{
	int64_t least = config_int(CONFIG_ISLAND_BYTES);
	struct gauge g = {.is = is};
	struct island_times longest[MEASURED];
	dicomm_result_t status;

	for (int c = 0; c < COLL_KINDS; c++)
		is->least[c] = (uint64_t)least;
	set_parts(is, least >= 0 ? PART_BYTES : 0);
	if (least >= 0)
		return DICOMM_SUCCESS;
	status = measure_all(&g, longest);
	if (status != DICOMM_SUCCESS)
		give_up(is);
	close_gauge(&g);
	if (status == DICOMM_SUCCESS && !*is->why)
		status = find_all(is, longest);
	return status;
}

/* Multiples of 64: the vendor's library copies aligned blocks faster. */
static void set_exchange(struct island *is, uint64_t part)
{
	uint64_t ranks = (uint64_t)is->comm->ranks;

	is->least_block = is->least[COLL_ALLTOALL] / ranks +
			  (is->least[COLL_ALLTOALL] % ranks != 0);
	is->exchange_bytes =
		part ? (part / is->size[is->mine] | 63) + 1 : SIZE_MAX;
}

dicomm_result_t island_compare(struct island *is)
{
	int64_t part = config_int(CONFIG_ISLAND_PART_BYTES);

	TRY(compare(is));
	if (part >= 0)
		set_parts(is, (uint64_t)part);
	set_exchange(is, part >= 0 ? (uint64_t)part : EXCHANGE_BYTES);
	return DICOMM_SUCCESS;
}
