/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/plans/redist.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/arithmetic.h"
#include "tests/support/element.h"
#include "tests/support/layouts.h"

struct rank {
	struct redist_plan *plan;
	char **source, **target;
	char *staging;
	uint32_t next; /* round */
	/* Messages of the round, copied when all have packed */
	char **bodies;
};

struct sim {
	const struct redist_request *request;
	const char *what;
	struct rank *ranks;
};

static char *at(const struct sim *s, const struct rank *r,
		const struct redist_at *a)
{
	size_t elem;

	if (a->place == REDIST_STAGED)
		return r->staging + a->at;
	elem = element_bytes(s->request->tensors[a->tensor].type);
	return (a->place == REDIST_SOURCE ? r->source : r->target)[a->tensor] +
	       a->at * elem;
}

static void copy(const struct sim *s, const struct rank *r,
		 struct redist_range range)
{
	for (uint32_t i = range.first; i < range.first + range.n; i++) {
		const struct redist_copy *c = &r->plan->copies[i];
		struct strided shape;

		redist_shape(r->plan, c, &shape);
		strided_copy(&shape, c->elem, at(s, r, &c->from),
			     at(s, r, &c->to));
	}
}

static double load(dicomm_datatype_t type, const char *p)
{
	return element_is_float(type) ? arithmetic_load(type, p)
				      : (double)arithmetic_integer(type, p);
}

static void store(dicomm_datatype_t type, char *p, double x)
{
	int64_t i = (int64_t)x;

	if (element_is_float(type))
		arithmetic_store(type, p, x);
	else
		memcpy(p, &i, element_bytes(type));
}

static void sum(const struct sim *s, const struct rank *r,
		struct redist_range range)
{
	for (uint32_t i = range.first; i < range.first + range.n; i++) {
		const struct redist_sum *m = &r->plan->sums[i];
		const struct redist_at *terms = &r->plan->terms[m->first];
		dicomm_datatype_t type = s->request->tensors[m->tensor].type;
		size_t elem = element_bytes(type);

		for (uint64_t e = 0; e < m->n; e++) {
			double x = 0;

			for (uint32_t t = 0; t < m->terms; t++)
				x += redist_weight(r->plan, m->tensor, t) *
				     load(type, at(s, r, &terms[t]) + e * elem);
			store(type, at(s, r, &m->to) + e * elem, x);
		}
	}
}

/* The message that answers number `nth` from `from` in this round */
static const char *body_of(const struct sim *s, int from, int to,
			   uint32_t number, uint32_t nth, uint64_t bytes)
{
	const struct rank *r = &s->ranks[from];
	const struct redist_round *round;

	ck_assert_msg(r->next < r->plan->nrounds &&
			      r->plan->rounds[r->next].number == number,
		      "%s: rank %d waits in round %u for rank %d", s->what, to,
		      number, from);
	round = &r->plan->rounds[r->next];
	for (uint32_t i = 0; i < round->sends.n; i++) {
		const struct redist_message *m =
			&r->plan->messages[round->sends.first + i];

		if (m->peer != to || nth--)
			continue;
		ck_assert_msg(m->bytes == bytes,
			      "%s: round %u: rank %d sends %zu bytes, rank %d "
			      "receives %zu",
			      s->what, number, from, (size_t)m->bytes, to,
			      (size_t)bytes);
		return r->bodies[i];
	}
	ck_abort_msg("%s: round %u: rank %d sends too few messages to %d",
		     s->what, number, from, to);
}

static uint32_t receive(const struct sim *s, int rank)
{
	const struct rank *r = &s->ranks[rank];
	const struct redist_round *round = &r->plan->rounds[r->next];
	uint32_t nth = 0;

	for (uint32_t i = 0; i < round->receives.n; i++) {
		const struct redist_message *m =
			&r->plan->messages[round->receives.first + i];

		nth = i && m[-1].peer == m->peer ? nth + 1 : 0;
		memcpy(at(s, r, &m->at),
		       body_of(s, m->peer, rank, round->number, nth, m->bytes),
		       m->bytes);
	}
	return round->receives.n;
}

static void pack(const struct sim *s, struct rank *r)
{
	const struct redist_round *round = &r->plan->rounds[r->next];

	copy(s, r, round->pack);
	r->bodies = calloc(round->sends.n + 1, sizeof(*r->bodies));
	for (uint32_t i = 0; i < round->sends.n; i++) {
		const struct redist_message *m =
			&r->plan->messages[round->sends.first + i];

		r->bodies[i] = malloc(m->bytes);
		memcpy(r->bodies[i], at(s, r, &m->at), m->bytes);
	}
}

static void end_round(struct rank *r)
{
	for (uint32_t i = 0; r->bodies[i]; i++)
		free(r->bodies[i]);
	free(r->bodies);
	r->bodies = NULL;
	r->next++;
}

/* The lowest round that is not done, of all ranks */
static bool lowest(const struct sim *s, uint32_t *number)
{
	bool any = false;

	for (int i = 0; i < s->request->ranks; i++) {
		const struct rank *r = &s->ranks[i];

		if (r->next == r->plan->nrounds)
			continue;
		if (!any || r->plan->rounds[r->next].number < *number)
			*number = r->plan->rounds[r->next].number;
		any = true;
	}
	return any;
}

static bool is_in(const struct rank *r, uint32_t number)
{
	return r->next < r->plan->nrounds &&
	       r->plan->rounds[r->next].number == number;
}

static void run_round(const struct sim *s, uint32_t number)
{
	uint32_t sent = 0, received = 0;

	for (int i = 0; i < s->request->ranks; i++)
		if (is_in(&s->ranks[i], number)) {
			pack(s, &s->ranks[i]);
			sent += s->ranks[i]
					.plan->rounds[s->ranks[i].next]
					.sends.n;
		}
	for (int i = 0; i < s->request->ranks; i++)
		if (is_in(&s->ranks[i], number))
			received += receive(s, i);
	ck_assert_msg(sent == received, "%s: round %u: %u sent, %u received",
		      s->what, number, sent, received);
	for (int i = 0; i < s->request->ranks; i++) {
		struct rank *r = &s->ranks[i];
		const struct redist_round *round;

		if (!is_in(r, number))
			continue;
		round = &r->plan->rounds[r->next];
		copy(s, r, round->unpack);
		sum(s, r, round->sums);
		copy(s, r, round->spread);
		end_round(r);
	}
}

static void begin(struct sim *s, int rank)
{
	struct redist_request request = *s->request;
	struct rank *r = &s->ranks[rank];
	size_t n = request.n;
	uint64_t bound = request.staging ? request.staging : REDIST_STAGING;

	request.rank = rank;
	ck_assert_msg(redist_plan_make(&request, &r->plan) == DICOMM_SUCCESS,
		      "%s: rank %d has no plan", s->what, rank);
	ck_assert_msg(r->plan->staging <= bound, "%s: rank %d stages %zu bytes",
		      s->what, rank, (size_t)r->plan->staging);
	r->staging = malloc(r->plan->staging + 1);
	r->source = calloc(n + 1, sizeof(*r->source));
	r->target = calloc(n + 1, sizeof(*r->target));
	for (size_t i = 0; i < n; i++) {
		r->source[i] = layouts_source(request.tensors, i, rank);
		r->target[i] = layouts_target(&request.tensors[i], rank);
	}
}

static void end(struct sim *s, int rank)
{
	struct rank *r = &s->ranks[rank];
	char text[200];

	for (size_t i = 0; i < s->request->n; i++) {
		ck_assert_msg(layouts_right(s->request->tensors, i, rank,
					    r->target[i], text, sizeof(text)),
			      "%s: %s: %s", s->what,
			      redist_way_name(r->plan->way), text);
		free(r->source[i]);
		free(r->target[i]);
	}
	free(r->source);
	free(r->target);
	free(r->staging);
	redist_plan_free(r->plan);
}

struct redist_traffic redist_run(const struct redist_request *request,
				 const char *what)
{
	struct sim s = {.request = request, .what = what};
	struct redist_traffic sent = {0, 0};
	uint32_t number = 0;

	s.ranks = calloc((size_t)request->ranks, sizeof(*s.ranks));
	for (int i = 0; i < request->ranks; i++)
		begin(&s, i);
	while (lowest(&s, &number))
		run_round(&s, number);
	for (int i = 0; i < request->ranks; i++) {
		sent.messages += s.ranks[i].plan->messages_sent;
		for (int to = 0; to < request->ranks; to++)
			sent.bytes += s.ranks[i].plan->sent[to];
		end(&s, i);
	}
	free(s.ranks);
	return sent;
}
