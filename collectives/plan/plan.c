/* SPDX-License-Identifier: BSD-3-Clause */
/* Building plans: spans, appending steps, deriving dependencies. */
#include "collectives/plan/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

void plan_init(struct plan *p, int ranks)
{
	memset(p, 0, sizeof(*p));
	p->ranks = ranks;
	p->message_parts = 1;
	p->message_parts_of = 1;
	p->largest_of = 1;
	p->status = DICOMM_SUCCESS;
}

void plan_free(struct plan *p)
{
	if (!p)
		return;
	free(p->steps);
	free(p->deps);
	free(p->sends_to);
	free(p->recvs_from);
	memset(p, 0, sizeof(*p));
}

void plan_set_in_place(struct plan *p, bool send_in_recv, uint32_t block)
{
	assert(p->nsteps == 0);
	p->in_place = true;
	p->in_place_send_in_recv = send_in_recv;
	p->in_place_block = block;
}

size_t plan_bytes(const struct plan *p)
{
	size_t n = (size_t)p->ranks;

	return sizeof(*p) + p->steps_room * sizeof(*p->steps) +
	       p->deps_room * sizeof(*p->deps) +
	       (p->sends_to ? n * sizeof(*p->sends_to) : 0) +
	       (p->recvs_from ? n * sizeof(*p->recvs_from) : 0);
}

void plan_split(size_t len, uint32_t lo, uint32_t hi, uint32_t parts,
		size_t align, size_t *first, size_t *n)
{
	size_t part = len / parts + (len % parts != 0);
	size_t begin, end;

	part = (part + align - 1) / align * align;
	begin = lo * part < len ? lo * part : len;
	end = hi * part < len ? hi * part : len;
	*first = begin;
	*n = end - begin;
}

/* Returns where a span lies, given that the buffers of an in-place call
 * alias. */
static struct span placed(const struct plan *p, struct span span)
{
	uint8_t inner = p->in_place_send_in_recv ? PLAN_SEND : PLAN_RECV;

	if (p->in_place && span.buffer == inner) {
		span.buffer = inner == PLAN_SEND ? PLAN_RECV : PLAN_SEND;
		span.block += p->in_place_block;
	}
	return span;
}

static bool same(struct span a, struct span b)
{
	return a.buffer == b.buffer && a.block == b.block &&
	       a.nblocks == b.nblocks && a.lo == b.lo && a.hi == b.hi &&
	       a.parts == b.parts;
}

static dicomm_result_t no_memory(const struct plan *p)
{
	return FAIL(DICOMM_ERR_NO_MEMORY,
		    "plan for %d ranks: no memory for %u steps", p->ranks,
		    p->nsteps);
}

static void append(struct plan *p, struct step step)
{
	struct step *steps;
	uint32_t room;

	if (p->status != DICOMM_SUCCESS)
		return;
	if (p->nsteps == p->steps_room) {
		room = p->steps_room ? 2 * p->steps_room : 16;
		steps = realloc(p->steps, room * sizeof(*steps));
		if (!steps) {
			p->status = no_memory(p);
			return;
		}
		p->steps = steps;
		p->steps_room = room;
	}
	step.dst = placed(p, step.dst);
	step.a = placed(p, step.a);
	step.b = placed(p, step.b);
	p->steps[p->nsteps++] = step;
}

void plan_message(struct plan *p, enum step_kind kind, int peer,
		  struct span dst, struct span a)
{
	append(p, (struct step){.kind = (uint8_t)kind,
				.peer = peer,
				.dst = dst,
				.a = a});
}

void plan_copy(struct plan *p, struct span dst, struct span a)
{
	if (!same(placed(p, dst), placed(p, a)) &&
	    !plan_told(p, STEP_COPY, -1, dst))
		append(p, (struct step){.kind = STEP_COPY,
					.peer = -1,
					.dst = dst,
					.a = a});
}

void plan_reduce(struct plan *p, struct span dst, struct span a, struct span b)
{
	if (!plan_told(p, STEP_REDUCE, -1, dst))
		append(p, (struct step){.kind = STEP_REDUCE,
					.peer = -1,
					.dst = dst,
					.a = a,
					.b = b});
}

void plan_scale(struct plan *p, struct span dst, struct span a)
{
	if (!plan_told(p, STEP_SCALE, -1, dst))
		append(p, (struct step){.kind = STEP_SCALE,
					.peer = -1,
					.dst = dst,
					.a = a});
}

void plan_divide(struct plan *p, struct span dst, struct span a)
{
	if (!plan_told(p, STEP_DIVIDE, -1, dst))
		append(p, (struct step){.kind = STEP_DIVIDE,
					.peer = -1,
					.dst = dst,
					.a = a});
}

void plan_fold(struct plan *p, struct span dst, struct span a,
	       uint32_t first_block, uint32_t n)
{
	struct span b = dst;

	b.buffer = PLAN_SCRATCH;
	b.block = first_block;
	if (p->tell)
		while (n-- > 1)
			plan_told(p, STEP_REDUCE, -1, dst);
	else if (dst.nblocks > 0 && dst.lo < dst.hi)
		append(p, (struct step){.kind = STEP_FOLD,
					.peer = -1,
					.dst = dst,
					.a = a,
					.b = b,
					.nfold = n});
}

void plan_fail(struct plan *p, dicomm_result_t status)
{
	p->status = status;
}

void plan_largest(struct plan *p, uint32_t parts, uint32_t parts_of)
{
	p->largest = parts;
	p->largest_of = parts_of;
}

uint32_t plan_scratch(struct plan *p, uint32_t n)
{
	uint32_t first = p->scratch_blocks;

	p->scratch_blocks += n;
	return first;
}

/*
 * How plan_finish() derives dependencies.
 *
 * For each block of each buffer there are lists of accesses by earlier steps,
 * newest first. A later step that conflicts with an access depends on its step.
 * A write removes the accesses that it covers: a later step that conflicts with
 * one of them conflicts with this write too, and the write waits for them.
 *
 * Plans for many ranks mostly cut one block into as many parts as there are
 * ranks. So an access to a single part goes to a list for this part, and a step
 * need not search the accesses to all other parts.
 */
struct access {
	uint32_t next; /* index + 1 of the next access; 0 at the end */
	uint32_t step;
	uint32_t lo, hi, parts;
	bool write;
};

struct accesses {
	uint32_t wide;    /* index + 1 of the first access; 0: none */
	uint32_t parts;   /* the number of lists in narrow[]; 0: none yet */
	uint32_t *narrow; /* [part]: like wide, for accesses to this part
			   * only */
};

struct deriving {
	struct plan *p;
	struct accesses *blocks[PLAN_BUFFERS]; /* [block] */
	uint32_t nblocks[PLAN_BUFFERS];
	bool written[PLAN_BUFFERS];
	struct access *pool;
	uint32_t used, room;
	uint32_t *found; /* conflicts of the current step */
	uint32_t nfound;
	uint32_t *mark; /* [step]: 1 + the last step that found it */
};

/* Parts are cut at multiples of a rounded length. So part numbers are
 * comparable only if both spans are cut into the same number of parts;
 * otherwise they are taken to overlap. */
static bool overlap(const struct access *e, struct span s)
{
	return e->parts != s.parts || (e->lo < s.hi && s.lo < e->hi);
}

static bool covers(struct span s, const struct access *e)
{
	if (s.lo == 0 && s.hi == s.parts)
		return true;
	return e->parts == s.parts && s.lo <= e->lo && e->hi <= s.hi;
}

static void conflict(struct deriving *d, uint32_t earlier, uint32_t step)
{
	if (earlier == step || d->mark[earlier] == step + 1)
		return;
	d->mark[earlier] = step + 1;
	d->found[d->nfound++] = earlier;
}

/* Finds the accesses of one list that conflict with an access of `step` to `s`.
 * A write removes the accesses that it covers from the list. */
static void search(struct deriving *d, uint32_t *link, uint32_t step,
		   struct span s, bool write)
{
	while (*link) {
		struct access *e = &d->pool[*link - 1];

		if ((write || e->write) && overlap(e, s))
			conflict(d, e->step, step);
		if (write && covers(s, e))
			*link = e->next;
		else
			link = &e->next;
	}
}

static bool insert(struct deriving *d, uint32_t *head, uint32_t step,
		   struct span s, bool write)
{
	struct access *pool;

	if (d->used == d->room) {
		d->room = d->room ? 2 * d->room : 64;
		pool = realloc(d->pool, d->room * sizeof(*pool));
		if (!pool)
			return false;
		d->pool = pool;
	}
	d->pool[d->used++] = (struct access){.next = *head,
					     .step = step,
					     .lo = s.lo,
					     .hi = s.hi,
					     .parts = s.parts,
					     .write = write};
	*head = d->used;
	return true;
}

static bool touch_block(struct deriving *d, uint32_t step, struct span s,
			struct accesses *block, bool write)
{
	bool narrow = s.parts > 1 && s.hi - s.lo == 1;

	if (narrow && block->parts == 0) {
		block->narrow = calloc(s.parts, sizeof(*block->narrow));
		if (!block->narrow)
			return false;
		block->parts = s.parts;
	}
	search(d, &block->wide, step, s, write);
	if (narrow && block->parts == s.parts) {
		search(d, &block->narrow[s.lo], step, s, write);
		return insert(d, &block->narrow[s.lo], step, s, write);
	}
	for (uint32_t i = 0; i < block->parts; i++)
		search(d, &block->narrow[i], step, s, write);
	return insert(d, &block->wide, step, s, write);
}

static bool touch(struct deriving *d, uint32_t step, struct span s, bool write)
{
	if (!d->written[s.buffer])
		return true;
	for (uint32_t i = 0; i < s.nblocks; i++)
		if (!touch_block(d, step, s, &d->blocks[s.buffer][s.block + i],
				 write))
			return false;
	return true;
}

/* Stores the spans that a step reads in out[]; returns their number. For a
 * fold, the second span is one scratch block for each rank. */
static uint32_t reads(const struct step *s, struct span out[2])
{
	switch ((enum step_kind)s->kind) {
	case STEP_RECV:
		return 0;
	case STEP_REDUCE:
	case STEP_FOLD:
		out[0] = s->a;
		out[1] = s->b;
		if (s->kind == STEP_FOLD)
			out[1].nblocks = s->nfold;
		return 2;
	default:
		out[0] = s->a;
		return 1;
	}
}

static bool writes(const struct step *s)
{
	return s->kind != STEP_SEND;
}

/* Keeps the conflicts that were found as dependencies of the step, except for
 * those on which another one of them depends already. */
static bool keep_deps(struct plan *p, struct deriving *d, uint32_t step)
{
	struct step *s = &p->steps[step];
	uint32_t *deps;

	for (uint32_t i = 0; i < d->nfound; i++) {
		const struct step *e = &p->steps[d->found[i]];

		for (uint32_t k = 0; k < e->dep_count; k++)
			d->mark[p->deps[e->dep_first + k]] = 0;
	}
	if (p->ndeps + d->nfound > p->deps_room) {
		uint32_t room = 2 * p->deps_room + d->nfound;

		deps = realloc(p->deps, room * sizeof(*deps));
		if (!deps)
			return false;
		p->deps = deps;
		p->deps_room = room;
	}
	s->dep_first = p->ndeps;
	for (uint32_t i = 0; i < d->nfound; i++)
		if (d->mark[d->found[i]] == step + 1)
			p->deps[p->ndeps++] = d->found[i];
	s->dep_count = p->ndeps - s->dep_first;
	return true;
}

static void measure(struct deriving *d, struct span s)
{
	if (d->nblocks[s.buffer] < s.block + s.nblocks)
		d->nblocks[s.buffer] = s.block + s.nblocks;
}

static bool derive_begin(struct deriving *d)
{
	struct plan *p = d->p;
	struct span read[2];

	for (uint32_t i = 0; i < p->nsteps; i++) {
		uint32_t n = reads(&p->steps[i], read);

		while (n > 0)
			measure(d, read[--n]);
		if (writes(&p->steps[i])) {
			measure(d, p->steps[i].dst);
			d->written[p->steps[i].dst.buffer] = true;
		}
	}
	d->found = calloc(p->nsteps + 1, sizeof(*d->found));
	d->mark = calloc(p->nsteps + 1, sizeof(*d->mark));
	if (!d->found || !d->mark)
		return false;
	for (int b = 0; b < PLAN_BUFFERS; b++) {
		d->blocks[b] = calloc(d->nblocks[b] + 1, sizeof(*d->blocks[b]));
		if (!d->blocks[b])
			return false;
	}
	return true;
}

static bool derive(struct deriving *d)
{
	struct plan *p = d->p;
	struct span read[2];

	if (!derive_begin(d))
		return false;
	p->ndeps = 0;
	for (uint32_t i = 0; i < p->nsteps; i++) {
		uint32_t n = reads(&p->steps[i], read);

		d->nfound = 0;
		while (n > 0)
			if (!touch(d, i, read[--n], false))
				return false;
		if (writes(&p->steps[i]) && !touch(d, i, p->steps[i].dst, true))
			return false;
		if (!keep_deps(p, d, i))
			return false;
	}
	return true;
}

static void derive_end(struct deriving *d)
{
	for (int b = 0; b < PLAN_BUFFERS; b++) {
		for (uint32_t i = 0; d->blocks[b] && i < d->nblocks[b]; i++)
			free(d->blocks[b][i].narrow);
		free(d->blocks[b]);
	}
	free(d->pool);
	free(d->found);
	free(d->mark);
}

static bool number_messages(struct plan *p)
{
	size_t n = (size_t)p->ranks;

	p->sends_to = calloc(n, sizeof(*p->sends_to));
	p->recvs_from = calloc(n, sizeof(*p->recvs_from));
	if (!p->sends_to || !p->recvs_from)
		return false;
	p->message_parts = p->largest;
	p->message_parts_of = p->largest_of;
	for (uint32_t i = 0; i < p->nsteps; i++) {
		struct step *s = &p->steps[i];
		struct span m = s->kind == STEP_SEND ? s->a : s->dst;
		uint64_t num;

		if (s->peer < 0)
			continue;
		s->pair_index = s->kind == STEP_SEND ? p->sends_to[s->peer]++
						     : p->recvs_from[s->peer]++;
		num = (uint64_t)(m.hi - m.lo) * m.nblocks;
		if (num * p->message_parts_of >
		    (uint64_t)p->message_parts * m.parts) {
			p->message_parts = (uint32_t)num;
			p->message_parts_of = m.parts;
		}
	}
	/* A plan without messages has slices as long as a slot. */
	if (p->message_parts == 0)
		p->message_parts = p->message_parts_of = 1;
	return true;
}

/* Gives back the memory that growing arrays have left over, since a plan is
 * kept for many calls. */
static void trim(struct plan *p)
{
	struct step *steps;
	uint32_t *deps;

	if (p->nsteps > 0 && p->nsteps < p->steps_room) {
		steps = realloc(p->steps, p->nsteps * sizeof(*steps));
		if (steps) {
			p->steps = steps;
			p->steps_room = p->nsteps;
		}
	}
	if (p->ndeps > 0 && p->ndeps < p->deps_room) {
		deps = realloc(p->deps, p->ndeps * sizeof(*deps));
		if (deps) {
			p->deps = deps;
			p->deps_room = p->ndeps;
		}
	}
}

dicomm_result_t plan_finish(struct plan *p)
{
	struct deriving d = {.p = p};

	if (p->status != DICOMM_SUCCESS)
		return p->status;
	if (!derive(&d) || !number_messages(p))
		p->status = no_memory(p);
	derive_end(&d);
	trim(p);
	return p->status;
}

/* Spreads the numbers of `n` ranks over those of all. */
static bool spread(uint32_t **numbers, const uint32_t *of, int n, int ranks)
{
	uint32_t *all = calloc((size_t)ranks, sizeof(*all));

	if (!all)
		return false;
	for (int i = 0; i < n; i++)
		all[of[i]] = (*numbers)[i];
	free(*numbers);
	*numbers = all;
	return true;
}

dicomm_result_t plan_among(struct plan *p, const uint32_t *of, int ranks)
{
	if (!spread(&p->sends_to, of, p->ranks, ranks) ||
	    !spread(&p->recvs_from, of, p->ranks, ranks))
		return p->status = no_memory(p);
	for (uint32_t i = 0; i < p->nsteps; i++)
		if (p->steps[i].peer >= 0)
			p->steps[i].peer = (int)of[p->steps[i].peer];
	p->ranks = ranks;
	return DICOMM_SUCCESS;
}
