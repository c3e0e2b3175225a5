/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a plan: copies and sums of this rank, and groups of messages. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/fault.h"
#include "src/engine/engine.h"
#include "src/redistribute/redistribute.h"
#include "src/stream/submit.h"

/* Terms that a kernel of a device takes from anywhere */
#define DEVICE_TERMS 8
#define NO_ROUND UINT32_MAX

/* Copies and sums between two groups of messages: those after a round, and
 * those before the next one */
struct interval {
	struct local_work work; /* first */
	struct redistribute_run *run;
	uint32_t after, before; /* NO_ROUND: none */
	bool last;
};

struct redistribute_run {
	struct dicomm_redistribute *of;
	_Atomic bool pending;
	const uint8_t **source;
	uint8_t **target;
	struct interval *intervals; /* [rounds + 1] */
	struct redistribute_run *next;
};

static uint8_t *locate(const struct redistribute_run *run,
		       const struct redist_at *at)
{
	const struct redist_plan *p = run->of->plan;
	uint64_t bytes;

	if (at->place == REDIST_STAGED)
		return run->of->staging + at->at;
	bytes = at->at * type_bytes(p->types[at->tensor]);
	/* Only read: sources are never a destination. */
	return at->place == REDIST_SOURCE
		       ? (uint8_t *)(uintptr_t)run->source[at->tensor] + bytes
		       : run->target[at->tensor] + bytes;
}

/* ---- copies and sums ---- */

struct device_copy {
	const struct accel_work *work;
	struct accel_stream *stream;
	const uint8_t *from;
	uint8_t *to;
	size_t elem;
};

static dicomm_result_t copy_run(void *ctx, int64_t from, int64_t to, uint64_t n)
{
	const struct device_copy *c = ctx;

	return c->work->copy(c->stream, c->to + (size_t)to * c->elem,
			     c->from + (size_t)from * c->elem, n * c->elem);
}

static dicomm_result_t do_copies(const struct redistribute_run *run,
				 struct redist_range range,
				 struct accel_stream *stream)
{
	const struct dicomm_redistribute *of = run->of;

	for (uint32_t i = range.first; i < range.first + range.n; i++) {
		const struct redist_copy *c = &of->plan->copies[i];
		const uint8_t *from = locate(run, &c->from);
		uint8_t *to = locate(run, &c->to);
		struct strided shape;

		if (from == to) /* in place */
			continue;
		redist_shape(of->plan, c, &shape);
		if (stream) {
			struct device_copy d = {of->comm->accel->work, stream,
						from, to, c->elem};

			TRY(strided_runs(&shape, copy_run, &d));
		} else {
			strided_copy(&shape, c->elem, from, to);
		}
	}
	return DICOMM_SUCCESS;
}

/* Weighted terms are in staging memory, and are scaled there. */
static dicomm_result_t sum_on_device(const struct redistribute_run *run,
				     const struct redist_sum *s,
				     const void *const *src,
				     struct accel_stream *stream)
{
	const struct redist_plan *p = run->of->plan;
	const struct accel_work *work = run->of->comm->accel->work;
	dicomm_datatype_t type = p->types[s->tensor];
	void *to = locate(run, &s->to);

	for (uint32_t t = 0; t < s->terms && redist_weighted(p, s->tensor);
	     t++) {
		double w = redist_weight(p, s->tensor, t);
		float narrow = (float)w;
		size_t numbers = 1;
		uint64_t bits = 0;

		if (type_plain(type, &numbers) == DICOMM_FLOAT64)
			memcpy(&bits, &w, sizeof(w));
		else
			memcpy(&bits, &narrow, sizeof(narrow));
		TRY(work->scale(stream, type, (void *)(uintptr_t)src[t], src[t],
				NULL, bits, s->n));
	}
	if (s->terms == 1)
		return work->copy(stream, to, src[0], s->n * type_bytes(type));
	return work->fold(stream, type, DICOMM_SUM, to, src, (int)s->terms,
			  s->n);
}

static void sum_on_host(const struct redistribute_run *run,
			const struct redist_sum *s, const void *const *src)
{
	const struct redist_plan *p = run->of->plan;
	dicomm_datatype_t type = p->types[s->tensor];
	void *to = locate(run, &s->to);

	if (redist_weighted(p, s->tensor))
		reduce_weighted(type, to, src,
				&p->weights[p->weights_at[s->tensor]],
				(int)s->terms, s->n);
	else
		reduce_fold(type, DICOMM_SUM, to, src, (int)s->terms, s->n);
}

static dicomm_result_t do_sums(const struct redistribute_run *run,
			       struct redist_range range,
			       struct accel_stream *stream)
{
	const struct redist_plan *p = run->of->plan;
	dicomm_result_t status = DICOMM_SUCCESS;
	const void **src = NULL;
	uint32_t room = 0;

	for (uint32_t i = range.first;
	     i < range.first + range.n && status == DICOMM_SUCCESS; i++) {
		const struct redist_sum *s = &p->sums[i];

		if (s->terms > room) {
			free(src);
			src = malloc(s->terms * sizeof(*src));
			room = s->terms;
		}
		if (!src)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "redistribute: no memory for %u terms",
				    s->terms);
		for (uint32_t t = 0; t < s->terms; t++)
			src[t] = locate(run, &p->terms[s->first + t]);
		if (stream)
			status = sum_on_device(run, s, src, stream);
		else
			sum_on_host(run, s, src);
	}
	free(src);
	return status;
}

static dicomm_result_t do_interval(const struct local_work *work,
				   struct accel_stream *stream)
{
	const struct interval *v = (const struct interval *)work;
	const struct redist_plan *p = v->run->of->plan;

	if (v->after != NO_ROUND) {
		const struct redist_round *r = &p->rounds[v->after];

		TRY(do_copies(v->run, r->unpack, stream));
		TRY(do_sums(v->run, r->sums, stream));
		TRY(do_copies(v->run, r->spread, stream));
	}
	if (v->before != NO_ROUND)
		TRY(do_copies(v->run, p->rounds[v->before].pack, stream));
	if (v->last)
		atomic_store_explicit(&v->run->pending, false,
				      memory_order_release);
	return DICOMM_SUCCESS;
}

/* ---- the chain ---- */

/* The first interval and the last one are calls of their own even if nothing is
 * copied: such calls run in call order whatever their streams, so that one run
 * uses the staging memory after the other. */
static bool is_gate(const struct redist_plan *p, const struct interval *v)
{
	return v->last || (v->after == NO_ROUND && p->staging);
}

static bool has_work(const struct redist_plan *p, const struct interval *v)
{
	const struct redist_round *a =
		v->after == NO_ROUND ? NULL : &p->rounds[v->after];
	const struct redist_round *b =
		v->before == NO_ROUND ? NULL : &p->rounds[v->before];

	return is_gate(p, v) ||
	       (a && (a->unpack.n || a->sums.n || a->spread.n)) ||
	       (b && b->pack.n);
}

/* Returns NULL if there is nothing to do. */
static const struct local_work *make_interval(struct redistribute_run *run,
					      uint32_t i)
{
	const struct redist_plan *p = run->of->plan;
	struct interval *v = &run->intervals[i];

	*v = (struct interval){.work = {do_interval},
			       .run = run,
			       .after = i ? i - 1 : NO_ROUND,
			       .before = i < p->nrounds ? i : NO_ROUND,
			       .last = i == p->nrounds};
	return has_work(p, v) ? &v->work : NULL;
}

static dicomm_result_t submit_interval(struct dicomm_comm *comm,
				       const struct local_work *work,
				       dicomm_stream_t stream)
{
	struct call call = {.kind = &local_kind,
			    .function = CALL_LOCAL_WORK,
			    .root = -1,
			    .work = work};

	return work ? group_call(comm, &call, NULL, stream) : DICOMM_SUCCESS;
}

static dicomm_result_t call_messages(const struct redistribute_run *run,
				     const struct redist_round *round,
				     dicomm_stream_t stream)
{
	const struct redist_message *m = run->of->plan->messages;
	struct dicomm_comm *comm = run->of->comm;

	for (uint32_t i = 0; i < round->receives.n; i++) {
		const struct redist_message *r = &m[round->receives.first + i];

		TRY(dicomm_recv(locate(run, &r->at), r->bytes, DICOMM_UINT8,
				r->peer, comm, stream));
	}
	for (uint32_t i = 0; i < round->sends.n; i++) {
		const struct redist_message *s = &m[round->sends.first + i];

		TRY(dicomm_send(locate(run, &s->at), s->bytes, DICOMM_UINT8,
				s->peer, comm, stream));
	}
	return DICOMM_SUCCESS;
}

/* On a host rank, the interval and the messages after it are one unit: a plan
 * may have thousands of rounds, and a unit costs as much as a message. */
static dicomm_result_t submit_round(struct redistribute_run *run, uint32_t i,
				    dicomm_stream_t stream)
{
	const struct redist_round *round = &run->of->plan->rounds[i];
	const struct local_work *work = make_interval(run, i);
	struct dicomm_comm *comm = run->of->comm;
	bool messages = round->sends.n || round->receives.n;
	bool apart = !i || comm->dev || !messages;
	dicomm_result_t status, ended;

	if (apart)
		TRY(submit_interval(comm, work, stream));
	if (!messages)
		return DICOMM_SUCCESS;
	TRY(dicomm_group_start());
	if (!apart)
		group_before(work);
	status = call_messages(run, round, stream);
	/* The others would wait for the messages that are missing. */
	if (status != DICOMM_SUCCESS && !fault_is(comm))
		fault_own(comm, status, -1);
	ended = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : ended;
}

static struct redistribute_run *free_run(struct redistribute_run *run)
{
	struct redistribute_run *next = run->next;

	free(run->source);
	free(run->target);
	free(run->intervals);
	free(run);
	return next;
}

static dicomm_result_t take_run(struct dicomm_redistribute *r,
				struct redistribute_run **out)
{
	size_t n = r->plan->ntensors;
	struct redistribute_run *run = r->runs;

	while (run && atomic_load_explicit(&run->pending, memory_order_acquire))
		run = run->next;
	*out = run;
	if (run)
		return DICOMM_SUCCESS;
	run = calloc(1, sizeof(*run));
	if (run) {
		run->of = r;
		run->source = calloc(n + 1, sizeof(*run->source));
		run->target = calloc(n + 1, sizeof(*run->target));
		run->intervals = calloc((size_t)r->plan->nrounds + 1,
					sizeof(*run->intervals));
	}
	if (!run || !run->source || !run->target || !run->intervals) {
		if (run)
			free_run(run);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute_run: no memory for %zu tensors", n);
	}
	run->next = r->runs;
	r->runs = *out = run;
	return DICOMM_SUCCESS;
}

dicomm_result_t run_start(struct dicomm_redistribute *r,
			  const void *const *source, void *const *target,
			  dicomm_stream_t stream)
{
	const struct redist_plan *p = r->plan;
	dicomm_result_t status = DICOMM_SUCCESS;
	struct redistribute_run *run;

	if (!p->nrounds)
		return DICOMM_SUCCESS;
	TRY(take_run(r, &run));
	for (size_t i = 0; i < p->ntensors; i++) {
		run->source[i] = source ? source[i] : NULL;
		run->target[i] = target ? target[i] : NULL;
	}
	atomic_store(&run->pending, true);
	for (uint32_t i = 0; i < p->nrounds && status == DICOMM_SUCCESS; i++)
		status = submit_round(run, i, stream);
	if (status == DICOMM_SUCCESS)
		status = submit_interval(
			r->comm, make_interval(run, p->nrounds), stream);
	/* A part of it may be queued already, and other ranks wait for the
	 * rest. */
	if (status != DICOMM_SUCCESS && !fault_is(r->comm))
		fault_own(r->comm, status, -1);
	return status;
}

bool run_pending(const struct dicomm_redistribute *r)
{
	for (const struct redistribute_run *run = r->runs; run; run = run->next)
		if (atomic_load_explicit(&run->pending, memory_order_acquire))
			return true;
	return false;
}

void run_free_all(struct dicomm_redistribute *r)
{
	while (r->runs)
		r->runs = free_run(r->runs);
}

dicomm_result_t run_check(const struct dicomm_comm *comm,
			  const struct redist_plan *p)
{
	for (size_t i = 0; i < p->ntensors && comm->dev; i++)
		if (type_is_narrow_float(p->types[i]) && redist_weighted(p, i))
			return FAIL(DICOMM_ERR_UNSUPPORTED,
				    "redistribute: tensor %zu: %s sums type %s "
				    "without weights only",
				    i, comm->device, type_name(p->types[i]));
	for (uint32_t r = 0; r < p->nrounds && comm->dev; r++)
		for (uint32_t i = 0; i < p->rounds[r].sums.n; i++) {
			const struct redist_sum *s =
				&p->sums[p->rounds[r].sums.first + i];

			if (s->terms > DEVICE_TERMS)
				return FAIL(DICOMM_ERR_UNSUPPORTED,
					    "redistribute: tensor %u: %s sums "
					    "%d terms at most, not %u",
					    s->tensor, comm->device,
					    DEVICE_TERMS, s->terms);
		}
	return DICOMM_SUCCESS;
}
