/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts the pieces of a rank into rounds and messages, and chooses the way. */
#include "collectives/redistribute/plan.h"

#include <stdlib.h>

#include "collectives/redistribute/check.h"
#include "collectives/redistribute/collect.h"
#include "src/base/log.h"

#define ALIGN 64

/* The state while a plan is made. */
struct making {
	struct collect c;
	struct redist_plan *p;
	/* Pieces sorted by round, kind and peer. */
	struct collect_piece **order;
	size_t at, sum;  /* the next piece in that order, and the next sum */
	uint64_t staged; /* bytes used in the current round */
	/* Sums that this rank keeps for the next round are at the beginning of
	 * staging memory in even rounds, and at its end in odd ones. So those
	 * of two rounds are beside each other, whatever their sizes. `kept`:
	 * bytes of the last two rounds, by round % 2; `placed`: of the current
	 * round, bytes that have their place already. */
	uint64_t kept[2], placed;
	uint32_t round; /* the current one */
	uint32_t ncopies, nmessages, nsums, nterms;
};

static int compare_pieces(const void *x, const void *y)
{
	const struct collect_piece *a = *(struct collect_piece *const *)x;
	const struct collect_piece *b = *(struct collect_piece *const *)y;

	if (a->round != b->round)
		return a->round < b->round ? -1 : 1;
	if (a->kind != b->kind)
		return a->kind - b->kind;
	if (a->peer != b->peer)
		return a->peer < b->peer ? -1 : 1;
	/* Keep the order in which they were collected, because sender and
	 * receiver have the same one. */
	return (a > b) - (a < b);
}

static struct redist_at tensor_at(const struct collect_piece *p, bool from)
{
	return (struct redist_at){from ? p->from : p->to, p->tensor,
				  from ? p->from_at : p->to_at};
}

static struct redist_at staged_at(uint64_t at)
{
	return (struct redist_at){.place = REDIST_STAGED, .at = at};
}

/* Where a piece is read. */
static struct redist_at read_at(const struct making *m,
				const struct collect_piece *p)
{
	return p->from == REDIST_STAGED ? m->p->sums[p->from_at].to
					: tensor_at(p, true);
}

static void add_copy(struct making *m, struct redist_at from,
		     struct redist_at to, uint32_t elem, uint32_t shape)
{
	m->p->copies[m->ncopies++] =
		(struct redist_copy){from, to, elem, shape};
}

static uint64_t take_staging(struct making *m, uint64_t bytes)
{
	uint64_t at = m->staged;

	m->staged += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return at;
}

static uint64_t kept_bytes(const struct collect_sum *s)
{
	return (s->n * s->elem + ALIGN - 1) / ALIGN * ALIGN;
}

/* Makes room for the sums that are kept from this round to the next one. Those
 * of the round before are sent in this one. */
static void begin_staging(struct making *m, uint32_t round)
{
	const struct collect_sum *sums = m->c.sums.at;
	uint64_t *now = &m->kept[round % 2];

	if (m->round + 1 != round)
		m->kept[(round + 1) % 2] = 0;
	m->round = round;
	*now = m->placed = 0;
	for (size_t i = m->sum; i < m->c.sums.n && sums[i].round == round; i++)
		if (sums[i].kept)
			*now += kept_bytes(&sums[i]);
	m->staged = m->kept[0];
}

static void end_staging(struct making *m)
{
	uint64_t bytes = m->staged + m->kept[1];

	if (bytes > m->p->staging)
		m->p->staging = bytes;
}

static struct redist_at keep_sum(struct making *m, const struct collect_sum *s)
{
	bool odd = s->round % 2;
	uint64_t at = odd ? m->kept[1] - m->placed : m->placed;

	m->placed += kept_bytes(s);
	return (struct redist_at){
		.place = odd ? REDIST_STAGED_END : REDIST_STAGED, .at = at};
}

/* Returns the next piece if it has that round and kind; otherwise NULL. */
static struct collect_piece *peek(const struct making *m, uint32_t round,
				  enum collect_kind kind)
{
	struct collect_piece *p =
		m->at < m->c.pieces.n ? m->order[m->at] : NULL;

	return p && p->round == round && p->kind == kind ? p : NULL;
}

static bool is_large(const struct collect_piece *p)
{
	return p->bytes >= REDIST_LARGE;
}

/* Makes a message of the next pieces, and sets the place of each piece in
 * it. */
static void add_message(struct making *m, uint32_t round,
			enum collect_kind kind)
{
	bool sends = kind == COLLECT_SEND;
	struct collect_piece *first = peek(m, round, kind), *p = first;
	struct redist_message *msg = &m->p->messages[m->nmessages++];
	uint64_t offset = 0;
	size_t n = 0;

	*msg = (struct redist_message){.peer = first->peer};
	for (; p && p->peer == first->peer; p = peek(m, round, kind)) {
		if (n && (is_large(p) || is_large(first)))
			break;
		p->staged = msg->bytes;
		msg->bytes += p->bytes;
		m->at++;
		n++;
	}
	if (n == 1 && first->is_run && (sends || first->to)) {
		msg->at = sends ? read_at(m, first) : tensor_at(first, false);
		return;
	}
	offset = take_staging(m, msg->bytes);
	msg->at = staged_at(offset);
	for (size_t i = m->at - n; i < m->at; i++) {
		p = m->order[i];
		p->staged += offset;
		if (sends)
			add_copy(m, read_at(m, p), staged_at(p->staged),
				 p->elem, p->shape);
	}
}

static void add_messages(struct making *m, uint32_t round,
			 enum collect_kind kind, struct redist_range *range)
{
	struct redist_plan *p = m->p;

	range->first = m->nmessages;
	while (peek(m, round, kind))
		add_message(m, round, kind);
	range->n = m->nmessages - range->first;
	for (uint32_t i = range->first; i < m->nmessages; i++) {
		const struct redist_message *msg = &p->messages[i];

		if (kind == COLLECT_SEND) {
			p->sent[msg->peer] += msg->bytes;
			p->messages_sent++;
		} else {
			p->received[msg->peer] += msg->bytes;
			p->messages_received++;
		}
	}
}

/* Adds copies out of messages that are received into staging memory. */
static void unpack(struct making *m, size_t first, size_t end,
		   const struct redist_range *receives)
{
	uint32_t k = receives->first;
	uint64_t left = 0;

	for (size_t i = first; i < end; i++) {
		const struct collect_piece *p = m->order[i];

		if (!left)
			left = m->p->messages[k++].bytes;
		left -= p->bytes;
		if (p->to == REDIST_TARGET &&
		    m->p->messages[k - 1].at.place == REDIST_STAGED)
			add_copy(m, staged_at(p->staged), tensor_at(p, false),
				 p->elem, p->shape);
	}
}

static void add_locals(struct making *m, uint32_t round)
{
	struct collect_piece *p;

	for (; (p = peek(m, round, COLLECT_LOCAL)); m->at++) {
		struct redist_at to = tensor_at(p, false);

		if (p->to == REDIST_STAGED) {
			/* This is a term of a sum. The sum reads it in place if
			 * it is contiguous and has no weight. */
			if (p->is_run && !redist_weighted(m->p, p->tensor))
				continue;
			p->staged = take_staging(m, p->bytes);
			to = staged_at(p->staged);
		}
		add_copy(m, tensor_at(p, true), to, p->elem, p->shape);
	}
}

/* Adds the sums of a round. Returns how many. */
static uint32_t add_sums(struct making *m, uint32_t round)
{
	const struct collect_sum *sums = m->c.sums.at;
	uint32_t n = 0;

	for (; m->sum < m->c.sums.n && sums[m->sum].round == round; m->sum++) {
		const struct collect_sum *s = &sums[m->sum];
		const uint32_t *inputs = m->c.inputs.at;
		struct redist_sum *to = &m->p->sums[m->nsums++];

		*to = (struct redist_sum){.tensor = s->tensor,
					  .first = m->nterms,
					  .terms = s->terms,
					  .n = s->n};
		if (s->kept)
			to->to = keep_sum(m, s);
		else if (s->is_run)
			to->to = (struct redist_at){REDIST_TARGET, s->tensor,
						    s->to_at};
		else
			to->to = staged_at(take_staging(m, s->n * s->elem));
		for (uint32_t i = 0; i < s->terms; i++) {
			const struct collect_piece *p =
				(struct collect_piece *)m->c.pieces.at +
				inputs[s->first + i];
			bool in_place = p->kind == COLLECT_LOCAL && p->is_run &&
					!redist_weighted(m->p, p->tensor);

			m->p->terms[m->nterms++] =
				in_place ? tensor_at(p, true)
					 : staged_at(p->staged);
		}
		n++;
	}
	return n;
}

static void spread(struct making *m, struct redist_round *r)
{
	const struct collect_sum *sums = m->c.sums.at;
	struct collect_piece *p;

	r->spread.first = m->ncopies;
	for (uint32_t i = 0; i < r->sums.n; i++) {
		const struct redist_sum *s = &m->p->sums[r->sums.first + i];
		const struct collect_sum *of = &sums[r->sums.first + i];

		if (!of->is_run)
			add_copy(m, s->to,
				 (struct redist_at){REDIST_TARGET, of->tensor,
						    of->to_at},
				 of->elem, of->shape);
	}
	for (; (p = peek(m, r->number, COLLECT_SPREAD)); m->at++)
		add_copy(m, tensor_at(p, true), tensor_at(p, false), p->elem,
			 p->shape);
	r->spread.n = m->ncopies - r->spread.first;
}

static void add_round(struct making *m, struct redist_round *r)
{
	size_t first;

	begin_staging(m, r->number);
	r->pack.first = m->ncopies;
	add_messages(m, r->number, COLLECT_SEND, &r->sends);
	r->pack.n = m->ncopies - r->pack.first;
	first = m->at;
	add_messages(m, r->number, COLLECT_RECEIVE, &r->receives);
	r->unpack.first = m->ncopies;
	unpack(m, first, m->at, &r->receives);
	add_locals(m, r->number);
	r->unpack.n = m->ncopies - r->unpack.first;
	r->sums.first = m->nsums;
	r->sums.n = add_sums(m, r->number);
	spread(m, r);
	end_staging(m);
}

static void settle(struct redist_at *at, uint64_t staging)
{
	if (at->place == REDIST_STAGED_END)
		*at = staged_at(staging - at->at);
}

/* Counts places from the beginning of staging memory, whose end is known now.
 */
static void settle_all(struct making *m)
{
	uint64_t staging = m->p->staging;

	for (uint32_t i = 0; i < m->nmessages; i++)
		settle(&m->p->messages[i].at, staging);
	for (uint32_t i = 0; i < m->ncopies; i++)
		settle(&m->p->copies[i].from, staging);
	for (uint32_t i = 0; i < m->nsums; i++)
		settle(&m->p->sums[i].to, staging);
}

/* ---- memory ---- */

static void *array(struct redist_plan *p, size_t n, size_t bytes)
{
	p->bytes += (n + 1) * bytes;
	return calloc(n + 1, bytes);
}

static dicomm_result_t no_memory(void)
{
	return FAIL(DICOMM_ERR_NO_MEMORY, "redistribute: no memory for a plan");
}

static dicomm_result_t copy_tensors(struct redist_plan *p,
				    const struct redist_request *r)
{
	size_t weights = 0;

	for (size_t i = 0; i < r->n; i++)
		if (r->tensors[i].weights)
			weights += r->tensors[i].terms
					   ? (size_t)r->tensors[i].terms
					   : 1;
	p->ntensors = r->n;
	p->types = array(p, r->n, sizeof(*p->types));
	p->weights = array(p, weights, sizeof(*p->weights));
	p->weights_at = array(p, r->n, sizeof(*p->weights_at));
	p->reads = array(p, r->n / 8, 1);
	p->writes = array(p, r->n / 8, 1);
	p->sent = array(p, (size_t)r->ranks, sizeof(*p->sent));
	p->received = array(p, (size_t)r->ranks, sizeof(*p->received));
	if (!p->types || !p->weights || !p->weights_at || !p->reads ||
	    !p->writes || !p->sent || !p->received)
		return no_memory();
	weights = 0;
	for (size_t i = 0; i < r->n; i++) {
		const dicomm_tensor_t *t = &r->tensors[i];

		p->types[i] = t->type;
		p->weights_at[i] = (uint32_t)weights;
		for (int k = 0; t->weights && k < (t->terms ? t->terms : 1);
		     k++)
			p->weights[weights++] = t->weights[k];
	}
	p->weights_at[r->n] = (uint32_t)weights;
	return DICOMM_SUCCESS;
}

static void mark_tensors(struct redist_plan *p, const struct collect *c)
{
	const struct collect_piece *piece = c->pieces.at;
	const struct collect_sum *sum = c->sums.at;

	for (size_t i = 0; i < c->pieces.n; i++, piece++) {
		uint8_t bit = (uint8_t)(1 << piece->tensor % 8);

		if (piece->from == REDIST_SOURCE)
			p->reads[piece->tensor / 8] |= bit;
		if (piece->to == REDIST_TARGET || piece->from == REDIST_TARGET)
			p->writes[piece->tensor / 8] |= bit;
	}
	for (size_t i = 0; i < c->sums.n; i++)
		if (!sum[i].kept)
			p->writes[sum[i].tensor / 8] |=
				(uint8_t)(1 << sum[i].tensor % 8);
}

/* Returns the number of rounds in which the rank has something to do. */
static uint32_t count_rounds(const struct making *m)
{
	uint32_t n = 0;

	for (size_t i = 0; i < m->c.pieces.n; i++)
		n += !i || m->order[i]->round != m->order[i - 1]->round;
	return n;
}

/* Each piece needs at most one copy and one message. The result of a sum needs
 * at most one copy. */
static dicomm_result_t make_rounds(struct making *m)
{
	struct redist_plan *p = m->p;
	size_t n = m->c.pieces.n, sums = m->c.sums.n;

	m->order = malloc((n + 1) * sizeof(struct collect_piece *));
	if (!m->order)
		return no_memory();
	for (size_t i = 0; i < n; i++)
		m->order[i] = (struct collect_piece *)m->c.pieces.at + i;
	qsort(m->order, n, sizeof(struct collect_piece *), compare_pieces);
	p->nrounds = count_rounds(m);
	p->rounds = array(p, p->nrounds, sizeof(*p->rounds));
	p->copies = array(p, n + sums, sizeof(*p->copies));
	p->messages = array(p, n, sizeof(*p->messages));
	p->sums = array(p, sums, sizeof(*p->sums));
	p->terms = array(p, m->c.inputs.n, sizeof(*p->terms));
	if (!p->rounds || !p->copies || !p->messages || !p->sums || !p->terms)
		return no_memory();
	for (uint32_t i = 0; i < p->nrounds; i++) {
		p->rounds[i].number = m->order[m->at]->round;
		add_round(m, &p->rounds[i]);
	}
	settle_all(m);
	p->axes = m->c.axes.at;
	p->bytes += m->c.axes.room * sizeof(*p->axes);
	m->c.axes.at = NULL;
	return DICOMM_SUCCESS;
}

/* ---- choice ---- */

static dicomm_result_t choose(struct redist_plan *p,
			      const struct redist_request *r,
			      const struct ways_input *in, uint64_t staging)
{
	TRY(cost_of_ways(in, &r->params, &r->memory, staging, p->cost));
	p->way = r->way;
	for (dicomm_way_t w = DICOMM_WAY_DIRECT; w < WAYS && !r->way; w++)
		if (!p->way || p->cost[w].ps < p->cost[p->way].ps)
			p->way = w;
	return DICOMM_SUCCESS;
}

dicomm_result_t redist_plan_make(const struct redist_request *r,
				 struct redist_plan **out)
{
	struct ways_input in = {
		r->tensors,  r->n,
		r->ranks,    r->links,
		r->unwanted, r->staging ? r->staging : REDIST_STAGING};
	struct making m = {.c = {.request = r, .staging = in.staging}};
	dicomm_result_t status;

	if (m.c.staging < REDIST_LEAST_STAGING)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "redistribute: staging_bytes %zu: below %d",
			    (size_t)m.c.staging, REDIST_LEAST_STAGING);
	for (size_t i = 0; i < r->n; i++)
		TRY(check_tensor(r->tensors, i, r->ranks));
	m.p = calloc(1, sizeof(*m.p));
	if (!m.p)
		return no_memory();
	m.p->bytes = sizeof(*m.p);
	m.p->rank = r->rank;
	m.p->ranks = r->ranks;
	status = choose(m.p, r, &in, m.c.staging);
	if (status == DICOMM_SUCCESS)
		status = copy_tensors(m.p, r);
	if (status == DICOMM_SUCCESS)
		status = collect_pieces(&m.c, &in, m.p->way);
	if (status == DICOMM_SUCCESS)
		status = make_rounds(&m);
	if (status == DICOMM_SUCCESS)
		mark_tensors(m.p, &m.c);
	collect_free(&m.c);
	free(m.order);
	if (status == DICOMM_SUCCESS)
		*out = m.p;
	else
		redist_plan_free(m.p);
	return status;
}

void redist_plan_free(struct redist_plan *p)
{
	if (!p)
		return;
	free(p->rounds);
	free(p->messages);
	free(p->copies);
	free(p->sums);
	free(p->terms);
	free(p->axes);
	free(p->sent);
	free(p->received);
	free(p->reads);
	free(p->writes);
	free(p->types);
	free(p->weights);
	free(p->weights_at);
	free(p);
}
