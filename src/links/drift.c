/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/drift.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/operation.h"
#include "src/links/agree.h"
#include "src/links/probe.h"

/* Shorter operations depend on latency rather than on rates. */
#define LEAST_BYTES (UINT64_C(1) << 20)
/* The predicted duration in the units in which ranks exchange durations. It is
 * large enough to resolve small changes. */
#define UNIT 65536
/* Measurements may take 1/COST of all time. */
#define COST 20

/* ---- whether durations are unusual ---- */

/* The first batch connects ranks and touches memory for the first time, so it
 * does not count. */
#define WARM_UP 1
#define PATIENCE 2
#define PATIENCE_MOST 64
/* After this many usual batches, patience is halved: a measurement long ago
 * that found no change counts less. */
#define CALM 16

void drift_watch_init(struct drift_watch *w, uint32_t expected)
{
	*w = (struct drift_watch){.expected = expected, .patience = PATIENCE};
}

static uint32_t median(const uint32_t took[DRIFT_BATCH])
{
	uint32_t sorted[DRIFT_BATCH];

	for (int i = 0, k; i < DRIFT_BATCH; i++) {
		for (k = i; k && sorted[k - 1] > took[i]; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = took[i];
	}
	return sorted[DRIFT_BATCH / 2 - 1] / 2 + sorted[DRIFT_BATCH / 2] / 2;
}

/* Returns true if a is more than half as much again as b. */
static bool is_longer(uint64_t a, uint64_t b)
{
	return 2 * a > 3 * b;
}

bool drift_watch_batch(struct drift_watch *w, const uint32_t took[DRIFT_BATCH],
		       bool may)
{
	uint64_t now = median(took);

	if (w->batches < WARM_UP) {
		w->batches++;
		return false;
	}
	/* A link may have become slow before the usual duration was known. */
	if (!w->usual && !(w->expected && is_longer(now, w->expected))) {
		w->usual = now ? (uint32_t)now : 1;
		w->unusual = 0;
		return false;
	}
	if (!w->usual || is_longer(now, w->usual) || is_longer(w->usual, now)) {
		w->unusual++;
		return may && w->unusual >= w->patience;
	}
	w->unusual = 0;
	if (++w->calm == CALM) {
		w->calm = 0;
		if (w->patience > PATIENCE)
			w->patience /= 2;
	}
	return false;
}

/* If the links have not changed, something else has, so be more patient next
 * time. The prediction may be wrong, so it is used for one measurement only. */
void drift_watch_measured(struct drift_watch *w, bool changed)
{
	if (!w->usual || !changed)
		w->expected = 0;
	w->usual = w->unusual = w->calm = 0;
	if (changed)
		w->patience = PATIENCE;
	else if (w->patience < PATIENCE_MOST)
		w->patience *= 2;
}

/* ---- watching a communicator ---- */

enum stage {
	WATCHING,
	COMPARING, /* ranks exchange the durations of a batch */
	MEASURING,
	SHARING /* ranks exchange the results of a measurement */
};

struct drift {
	struct drift_watch watch;
	enum stage stage;
	/* What ranks agree on: the duration of each operation, and a flag in
	 * the last word: enough time has passed since the last measurement, and
	 * there is time for the next one. */
	uint32_t took[DRIFT_BATCH + 1];
	/* These are stored as UINT32_MAX - duration. */
	bool rooted[DRIFT_BATCH];
	uint32_t recorded;
	struct agree agree;
	struct probe probe;
	struct rates rates;
	/* How many numbers of rates.flow are shared, and are there. */
	uint32_t shared, flows;
	uint64_t begun_ns, ended_ns; /* start and end of the last measurement */
};

dicomm_result_t drift_open(struct dicomm_comm *comm)
{
	struct drift *d;

	if (!links_matter(comm->links) || comm->apart || comm->deterministic ||
	    comm->links_summed || !config_bool(CONFIG_DRIFT))
		return DICOMM_SUCCESS;
	d = calloc(1, sizeof(*d));
	comm->drift = d;
	if (!d)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	d->flows = comm->links->nodes * RATES_FLOWS;
	drift_watch_init(&d->watch, probe_knows(comm) ? UNIT : 0);
	return rates_open(&d->rates, comm->links->nodes);
}

void drift_free(struct dicomm_comm *comm)
{
	if (comm->drift)
		rates_close(&comm->drift->rates);
	free(comm->drift);
}

/* Returns true if the counts of all ranks are nearly equal, as the prediction
 * assumes. */
static bool are_even(const size_t *counts, int ranks)
{
	uint64_t most = 0, sum = 0;

	for (int r = 0; r < ranks; r++) {
		sum += counts[r];
		most = counts[r] > most ? counts[r] : most;
	}
	return most <= (sum + sum / 4) / (uint64_t)ranks;
}

/* Returns true if the operation counts: each rank waits for all others, or
 * there is a root; and all ranks know its length. */
static bool counts(const struct call *call, int ranks)
{
	switch (call->function) {
	case COLL_ALLREDUCE:
	case COLL_ALLGATHER:
	case COLL_REDUCE_SCATTER:
	case COLL_ALLTOALL:
	case COLL_BROADCAST:
	case COLL_REDUCE:
	case COLL_GATHER:
	case COLL_SCATTER:
		return true;
	case COLL_ALLGATHERV:
	case COLL_REDUCE_SCATTERV:
		return are_even(call->counts, ranks);
	default:
		return false;
	}
}

dicomm_result_t drift_expected(const struct dicomm_comm *comm,
			       const struct call *call, const struct shape *s,
			       uint64_t bytes, const struct algorithm *a,
			       uint64_t *ns)
{
	uint64_t ps;

	*ns = 0;
	if (!comm->drift || bytes < LEAST_BYTES || !counts(call, comm->ranks))
		return DICOMM_SUCCESS;
	TRY(select_predict(&comm->table, s, bytes, a, &ps));
	*ns = ps / 1000 + 1;
	return DICOMM_SUCCESS;
}

/* Ranks agree on the minimum. So for an operation with a root, whose maximum
 * counts, the duration is stored as UINT32_MAX - duration. */
void drift_record(const struct operation *op, uint64_t took_ns,
		  uint64_t expected_ns)
{
	struct drift *d = op->comm->drift;
	uint64_t units = took_ns * UNIT / expected_ns;
	uint32_t took = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;

	d->rooted[d->recorded] = call_rooted(op->call.function);
	d->took[d->recorded] =
		d->rooted[d->recorded] ? UINT32_MAX - took : took;
	d->recorded++;
}

/* Bytes that had arrived before a rank began to receive say nothing about time.
 * So a duration below the prediction is replaced by the prediction. */
static void read_rooted(struct drift *d)
{
	for (int i = 0; i < DRIFT_BATCH; i++) {
		if (!d->rooted[i])
			continue;
		d->took[i] = UINT32_MAX - d->took[i];
		if (d->took[i] < UNIT)
			d->took[i] = UNIT;
	}
}

int drift_awaits(const struct dicomm_comm *comm)
{
	const struct drift *d = comm->drift;

	if (!d || d->stage == WATCHING)
		return -1;
	return d->stage == MEASURING ? probe_awaits(&d->probe)
				     : agree_awaits(&d->agree);
}

static void begin_compare(struct drift *d, const struct operation *op)
{
	uint64_t cost_ns = d->ended_ns - d->begun_ns;

	d->took[DRIFT_BATCH] = probe_fits(op->comm) &&
			       clock_ns() - d->ended_ns >= COST * cost_ns;
	agree_begin(&d->agree, op, d->took, DRIFT_BATCH + 1);
	d->stage = COMPARING;
}

static void begin_measure(struct dicomm_comm *comm, const struct operation *op)
{
	probe_begin(&comm->drift->probe, comm, op, &comm->drift->rates);
	comm->drift->stage = MEASURING;
}

/* A batch has been compared. All ranks decide alike. */
static void end_compare(struct dicomm_comm *comm, const struct operation *op)
{
	struct drift *d = comm->drift;

	d->recorded = 0;
	d->stage = WATCHING;
	read_rooted(d);
	if (!drift_watch_batch(&d->watch, d->took, d->took[DRIFT_BATCH]))
		return;
	if (comm->rank == 0)
		log_info("%s: the duration of operations has changed: "
			 "measuring the links",
			 comm->name);
	d->begun_ns = clock_ns();
	rates_forget(&d->rates);
	begin_measure(comm, op);
}

/* Starts to share the next part of the results. */
static void begin_share(struct drift *d, const struct operation *op)
{
	uint32_t left = d->flows - d->shared;

	agree_begin(&d->agree, op, d->rates.flow + d->shared,
		    left < AGREE_MOST ? left : AGREE_MOST);
	d->stage = SHARING;
}

static void end_measure(struct drift *d, const struct operation *op)
{
	rates_add(&d->rates, d->probe.node, d->probe.flow);
	d->shared = 0;
	begin_share(d, op);
}

static dicomm_result_t end_share(struct dicomm_comm *comm,
				 const struct operation *op)
{
	struct drift *d = comm->drift;
	bool changed;

	d->shared += d->agree.words;
	if (d->shared < d->flows) {
		begin_share(d, op);
		return DICOMM_SUCCESS;
	}
	TRY(rates_proceed(&d->rates, comm->links, probe_knows(comm)));
	if (d->rates.stage != RATES_DONE) {
		begin_measure(comm, op);
		return DICOMM_SUCCESS;
	}
	TRY(probe_adopt(comm, &d->rates, &changed));
	drift_watch_measured(&d->watch, changed);
	d->ended_ns = clock_ns();
	d->stage = WATCHING;
	return DICOMM_SUCCESS;
}

dicomm_result_t drift_turn(const struct operation *op, bool *moved)
{
	struct dicomm_comm *comm = op->comm;
	struct drift *d = comm->drift;

	for (;;) {
		switch (d->stage) {
		case WATCHING:
			if (d->recorded < DRIFT_BATCH)
				return DICOMM_SUCCESS;
			begin_compare(d, op);
			break;
		case COMPARING:
			TRY(agree_turn(&d->agree, moved));
			end_compare(comm, op);
			break;
		case MEASURING:
			TRY(probe_turn(&d->probe, moved));
			end_measure(d, op);
			break;
		case SHARING:
			TRY(agree_turn(&d->agree, moved));
			TRY(end_share(comm, op));
			break;
		}
	}
}
