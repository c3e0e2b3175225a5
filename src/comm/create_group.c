/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator made from a parent by its members alone.
 *
 * An all-gather would need all ranks of the parent, so the members write
 * letters through the parent's hub instead. Each member tells the first one
 * that it has come, and whether it can take part. The first one waits for all
 * of them, makes an id, and answers each. The key of the letters is made of
 * the tag and the list of members, so that groups that are made at the same
 * time do not mix up. An answer repeats the number of the call that it is for:
 * a member that has given up and calls again does not take an old answer.
 *
 * If a member does not come, the first one names it to the others. It answers
 * before any of them runs out of time by itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/comm/lifecycle.h"
#include "src/core/comm.h"
#include "src/core/fault.h"
#include "src/core/setup_call.h"
#include "src/stream/submit.h"

#define MS_NS UINT64_C(1000000)
#define FOREVER_NS (UINT64_C(1) << 62)
/* Of its time, in tenths, a member leaves so much to the first one. */
#define TENTHS 9
/* How often the first one looks whether a member has left */
#define SLICE_NS (100 * MS_NS)

struct group_args {
	struct dicomm_comm *parent;
	int count, tag;
	int rank; /* of the new communicator */
	dicomm_comm_t *out;
	dicomm_config_t config; /* owned */
	struct setup_refusal refusal;
	uint32_t was[]; /* [count]: ranks of the parent */
};

/* What a member tells the first one. */
struct arrival {
	uint64_t number;     /* of the call */
	int32_t patience_ms; /* 0: no limit */
	int32_t status;      /* can it take part? */
	char why[200];       /* if not */
};

/* What the first one answers. */
struct answer {
	uint64_t number; /* of the arrival */
	int32_t status;
	dicomm_unique_id_t id;
	char why[400];
};

_Static_assert(sizeof(struct answer) <= CONTROL_LETTER_MAX, "it fits");

static void free_group(void *arg)
{
	struct group_args *a = arg;

	comm_config_free(&a->config);
	free(a);
}

static uint64_t key_of(const struct group_args *a, const char *direction)
{
	uint64_t h = hash_bytes(HASH_START, direction, strlen(direction));

	h = hash_bytes(h, &a->tag, sizeof(a->tag));
	return hash_bytes(h, a->was, (size_t)a->count * sizeof(*a->was));
}

static const char *where(const struct group_args *a, int member)
{
	return control_where(a->parent->control, (int)a->was[member]);
}

/* Who has come, as the first one sees it. */
struct roll {
	uint64_t *numbers; /* [count]: of their calls */
	bool *came;        /* [count] */
	uint64_t until_ns;
	dicomm_result_t status;
	char why[400];
	int missing;
};

static void fail(struct roll *r, dicomm_result_t status, const char *text)
{
	if (r->status != DICOMM_SUCCESS)
		return;
	r->status = status;
	snprintf(r->why, sizeof(r->why), "%s", text);
}

/* The first member cannot take part itself. */
static void fail_first(const struct group_args *a, struct roll *r,
		       dicomm_result_t status)
{
	char text[400];

	snprintf(text, sizeof(text),
		 "comm_create_group: rank %d (%s) could not join: %.200s",
		 a->parent->rank, where(a, 0), log_last_error());
	fail(r, status, text);
}

/* A member whose time is about to be over is on its way out, and may call
 * again: it has not come yet. */
static void note_arrival(const struct group_args *a, struct roll *r, int member,
			 struct arrival *m, uint64_t age_ms)
{
	uint64_t now = clock_ns(), until_ns = FOREVER_NS;
	char text[400];

	if (m->patience_ms > 0)
		until_ns = now - age_ms * MS_NS +
			   (uint64_t)m->patience_ms * MS_NS / 10 * TENTHS;
	if (until_ns <= now)
		return;
	if (until_ns < r->until_ns)
		r->until_ns = until_ns;
	r->came[member] = true;
	r->numbers[member] = m->number;
	m->why[sizeof(m->why) - 1] = '\0';
	if (m->status == DICOMM_SUCCESS)
		return;
	snprintf(text, sizeof(text),
		 "comm_create_group: rank %u (%s) could not join: %s",
		 a->was[member], where(a, member), m->why);
	fail(r, (dicomm_result_t)m->status, text);
}

static void name_missing(const struct group_args *a, struct roll *r, int ms)
{
	char list[200] = "", text[400];
	size_t n = 0;

	for (int i = 1; i < a->count; i++)
		if (!r->came[i] && n + 100 < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n,
					      "%s%u (%.60s)", n ? ", " : "",
					      a->was[i], where(a, i));
	snprintf(text, sizeof(text),
		 "comm_create_group: %s %s%s of the parent did not come within "
		 "%d ms with tag %d and the same list of %d ranks",
		 r->missing > 1 ? "ranks" : "rank", list,
		 r->missing > 1 && n + 100 >= sizeof(list) ? ", ..." : "", ms,
		 a->tag, a->count);
	fail(r, DICOMM_ERR_TIMEOUT, text);
}

/* Members that have left the parent never come. Returns the number of those
 * that may. */
static int count_absent(const struct group_args *a, struct roll *r)
{
	char text[400];
	int n = 0;

	for (int i = 1; i < a->count; i++) {
		if (r->came[i])
			continue;
		if (!control_gone(a->parent->control, (int)a->was[i])) {
			n++;
			continue;
		}
		snprintf(text, sizeof(text),
			 "comm_create_group: rank %u (%s) has left", a->was[i],
			 where(a, i));
		fail(r, DICOMM_ERR_REMOTE, text);
	}
	return n;
}

static dicomm_result_t await_one(const struct group_args *a, struct roll *r,
				 uint64_t key)
{
	uint64_t slice = clock_ns() + SLICE_NS, age_ms;
	struct arrival m;
	dicomm_result_t status;
	int from = -1;

	status = control_fetch(a->parent->control, &from, key, &m, sizeof(m),
			       &age_ms,
			       slice < r->until_ns ? slice : r->until_ns);
	for (int i = 1; status == DICOMM_SUCCESS && i < a->count; i++) {
		if ((int)a->was[i] == from)
			note_arrival(a, r, i, &m, age_ms);
	}
	return status;
}

/* Also after a failure of a member it waits for all, for it has to answer. */
static void call_roll(const struct group_args *a, struct roll *r, int ms)
{
	uint64_t key = key_of(a, "arrival"), begin = clock_ns();
	dicomm_result_t status;

	r->until_ns = ms > 0 ? begin + (uint64_t)ms * MS_NS : FOREVER_NS;
	while ((r->missing = count_absent(a, r))) {
		status = await_one(a, r, key);
		if (status != DICOMM_SUCCESS && status != DICOMM_ERR_TIMEOUT) {
			fail(r, status, log_last_error());
			return;
		}
		if (clock_ns() >= r->until_ns)
			break;
	}
	r->missing = count_absent(a, r);
	if (r->missing)
		name_missing(a, r, (int)((clock_ns() - begin) / MS_NS));
}

static void answer_all(const struct group_args *a, const struct roll *r,
		       const dicomm_unique_id_t *id)
{
	struct control *c = a->parent->control;
	uint64_t key = key_of(a, "answer");
	struct answer out;

	memset(&out, 0, sizeof(out));
	out.status = (int32_t)r->status;
	out.id = *id;
	memcpy(out.why, r->why, sizeof(out.why));
	for (int i = 1; i < a->count; i++) {
		out.number = r->numbers[i];
		if (r->came[i])
			control_post(c, (int)a->was[i], key, &out, sizeof(out));
	}
	auth_forget(&out, sizeof(out));
}

/* The first member. `mine` is what it found about itself. */
static dicomm_result_t lead(const struct group_args *a, dicomm_result_t mine,
			    int ms, dicomm_unique_id_t *id)
{
	struct roll r = {.numbers =
				 calloc((size_t)a->count, sizeof(*r.numbers)),
			 .came = calloc((size_t)a->count, sizeof(*r.came))};

	if (!r.numbers || !r.came) {
		free(r.numbers);
		free(r.came);
		/* The others wait for an answer. */
		return fault_raise(
			a->parent, DICOMM_ERR_NO_MEMORY, a->parent->rank, true,
			"comm_create_group: no memory for %d ranks", a->count);
	}
	if (mine != DICOMM_SUCCESS)
		fail_first(a, &r, mine);
	call_roll(a, &r, ms);
	if (r.status == DICOMM_SUCCESS) {
		mine = id_create(id);
		if (mine != DICOMM_SUCCESS)
			fail_first(a, &r, mine);
	}
	answer_all(a, &r, id);
	free(r.numbers);
	free(r.came);
	if (r.status != DICOMM_SUCCESS)
		return FAIL(r.status, "%s", r.why);
	return DICOMM_SUCCESS;
}

/* Another member. */
static dicomm_result_t follow(const struct group_args *a, dicomm_result_t mine,
			      int ms, dicomm_unique_id_t *id)
{
	struct control *c = a->parent->control;
	uint64_t key = key_of(a, "arrival"), age_ms;
	uint64_t until_ns =
		ms > 0 ? clock_ns() + (uint64_t)ms * MS_NS : FOREVER_NS;
	struct arrival m;
	struct answer in;
	dicomm_result_t status;
	int first = (int)a->was[0];

	memset(&m, 0, sizeof(m));
	auth_random((uint8_t *)&m.number, sizeof(m.number));
	m.patience_ms = ms;
	m.status = (int32_t)mine;
	if (mine != DICOMM_SUCCESS)
		snprintf(m.why, sizeof(m.why), "%s", log_last_error());
	TRY(control_post(c, first, key, &m, sizeof(m)));
	/* Also a member that cannot take part waits for the answer: its next
	 * letter would take the place of this one. */
	do {
		status = control_fetch(c, &first, key_of(a, "answer"), &in,
				       sizeof(in), &age_ms, until_ns);
	} while (status == DICOMM_SUCCESS && in.number != m.number);
	if (status == DICOMM_ERR_TIMEOUT) {
		control_post(c, first, key, "", 0);
		return FAIL(status,
			    "comm_create_group: rank %d (%s), the first of the "
			    "new ranks, did not come within %d ms with tag %d "
			    "and the same list of %d ranks",
			    first, where(a, 0), ms, a->tag, a->count);
	}
	TRY(status);
	if (mine != DICOMM_SUCCESS) {
		log_set_last_error(m.why);
		return mine;
	}
	in.why[sizeof(in.why) - 1] = '\0';
	if (in.status != DICOMM_SUCCESS)
		return FAIL((dicomm_result_t)in.status, "%s", in.why);
	*id = in.id;
	return DICOMM_SUCCESS;
}

static dicomm_result_t create_now(void *arg)
{
	struct group_args *a = arg;
	struct dicomm_comm *parent = a->parent;
	struct comm_start *start = NULL;
	dicomm_unique_id_t id = {.text = ""};
	dicomm_result_t status;
	int ms = parent->join_ms;

	status = a->refusal.status;
	if (status == DICOMM_SUCCESS)
		status = comm_start_prepare(&start, a->count, a->rank,
					    &a->config, parent, a->was);
	else
		log_set_last_error(a->refusal.why);
	if (status == DICOMM_SUCCESS)
		ms = comm_start_patience(start);
	status =
		a->rank ? follow(a, status, ms, &id) : lead(a, status, ms, &id);
	if (status == DICOMM_SUCCESS)
		status = comm_start_join(start, a->out, &id);
	else if (start)
		comm_start_refuse(start);
	status = fault_of_parent(parent, status);
	auth_forget(&id, sizeof(id));
	free_group(a);
	return status;
}

static dicomm_result_t take_ranks(struct group_args *a, const int *ranks)
{
	static const char f[] = "comm_create_group";
	const struct dicomm_comm *parent = a->parent;
	bool *taken = calloc((size_t)parent->ranks, sizeof(*taken));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!taken)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", f);
	a->rank = -1;
	for (int i = 0; i < a->count && status == DICOMM_SUCCESS; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->ranks) {
			status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				      "%s: ranks[%d] is %d: not in 0 .. %d", f,
				      i, ranks[i], parent->ranks - 1);
			break;
		}
		if (taken[ranks[i]])
			status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				      "%s: ranks[%d] is %d, for the second "
				      "time",
				      f, i, ranks[i]);
		taken[ranks[i]] = true;
		a->was[i] = (uint32_t)ranks[i];
		if (ranks[i] == parent->rank)
			a->rank = i;
	}
	free(taken);
	if (status == DICOMM_SUCCESS && a->rank < 0)
		status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			      "%s: rank %d, which calls it, is not one of the "
			      "%d ranks",
			      f, parent->rank, a->count);
	return status;
}

dicomm_result_t dicomm_comm_create_group(dicomm_comm_t comm, const int *ranks,
					 int nranks, int tag,
					 dicomm_comm_t *newcomm,
					 const dicomm_config_t *config)
{
	CANCEL_HELD();
	static const char f[] = "comm_create_group";
	struct group_args *a;
	dicomm_result_t status;

	if (newcomm)
		*newcomm = NULL;
	TRY(comm_check_slow(comm, f));
	if (!ranks || nranks < 1 || nranks > comm->ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: ranks %p, nranks %d: not 1 .. %d ranks", f,
			    (const void *)ranks, nranks, comm->ranks);
	a = calloc(1, sizeof(*a) + (size_t)nranks * sizeof(*a->was));
	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", f);
	a->parent = comm;
	a->count = nranks;
	a->tag = tag;
	a->out = newcomm;
	status = take_ranks(a, ranks);
	if (status != DICOMM_SUCCESS) {
		free(a);
		return status;
	}
	if (!newcomm)
		setup_refuse(&a->refusal, FAIL(DICOMM_ERR_INVALID_ARGUMENT,
					       "%s: newcomm is NULL", f));
	setup_refuse(
		&a->refusal,
		comm_config_copy(&a->config, config ? config : &comm->config));
	/* The new communicator meets by an id. */
	if (!config)
		a->config.bootstrap.allgather = NULL;
	return group_init(comm, create_now, free_group, a);
}
