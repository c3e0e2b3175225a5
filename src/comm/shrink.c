/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is left of a communicator, as a new one.
 *
 * Survivors must agree on who they are, though each may have heard of other
 * deaths. Each rank probes the recovery socket of every rank that is not
 * excluded. The key of the new id is made of the set of those that answered, so
 * that only ranks with equal sets join each other. If a rank dies in between,
 * joining fails or takes too long, and a new round begins with the smaller set.
 * After half of DICOMM_BOOTSTRAP_TIMEOUT a rank says in its answers that it is
 * late: then all ranks leave out those that are alive and have not called
 * comm_shrink. The rounds end with DICOMM_BOOTSTRAP_TIMEOUT. The side without a
 * majority of the parent (at exactly half: without its lowest rank) is refused,
 * so that a divided network cannot make two successors. A shrink that is only
 * planned, where every rank comes that is not excluded and every excluded one
 * answers too, or has left in good order, needs no majority.
 *
 * The first survivor hosts the hub, and may die after it has told one rank that
 * all have come and before it tells the next: one would have a communicator,
 * and the other would go another round without it. So at the end all ranks
 * commit, each with each (src/boot/control/commit.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/texts.h"
#include "src/boot/control/commit.h"
#include "src/boot/control/control.h"
#include "src/boot/control/id.h"
#include "src/boot/control/recovery.h"
#include "src/comm/create.h"
#include "src/comm/setup.h"
#include "src/core/comm.h"
#include "src/links/topology.h"
#include "src/stream/submit.h"
#include "src/core/fault.h"

/* How long no answer to any probe comes before the rest counts as gone; with
 * many ranks on one machine they may be late. A rank that stands still never
 * answers, so it costs that time in each round: no more than a share of all
 * there is. */
#define PROBE_MS 3000
#define PROBE_MS_PER_RANK 10
#define PROBE_SHARE 6
/* A rank that dies unnoticed spoils a round, so the first rounds are short. But
 * once all have come, a slow rank must not give up what the others already
 * have. */
#define ROUND_MS 500
#define ROUND_MS_PER_RANK 10
#define PAUSE_NS 10000000

struct shrink_args {
	struct dicomm_comm *parent;
	dicomm_comm_t *out;
	dicomm_config_t config; /* owned */
	enum recovery_state
		*states; /* owned, [ranks]: answers to the last probe */
	/* Owned, [ranks]: it was logged that this rank is left out */
	bool *left_out;
	/* Those that are not excluded would be no majority. */
	bool asks_excluded;
	bool unbroken;   /* the parent */
	bool excluded[]; /* [ranks] */
};

struct survivors {
	int count, first, index; /* by rank: this rank's place */
	bool planned;            /* all others are excluded, and well */
	char phrase[160];
};

/* Is a survivor late because ranks are alive but do not call? Then all count as
 * late, so that they agree on who is left. */
static bool is_late(const struct shrink_args *a)
{
	for (int r = 0; r < a->parent->ranks; r++)
		if (a->states[r] == RECOVERY_LATE && !a->excluded[r])
			return true;
	return false;
}

static void leave_out(struct shrink_args *a, int rank)
{
	if (a->left_out[rank])
		return;
	a->left_out[rank] = true;
	log_warn("comm_shrink: rank %d (%s) is alive, but has not called it in "
		 "time: left out",
		 rank, control_where(a->parent->control, rank));
}

/* What a launcher, or a caller that sets no bound, allows for ranks to begin is
 * too long for ranks that have been there. */
static int patience_ms(const struct dicomm_comm *parent)
{
	int ms = parent->config.bootstrap_timeout_ms;

	if (ms != DICOMM_UNDEFINED_INT && ms != INT32_MAX)
		return ms;
	return (int)config_int(CONFIG_BOOTSTRAP_TIMEOUT) * 1000;
}

static int probe_ms(const struct dicomm_comm *parent)
{
	uint64_t most = (uint64_t)patience_ms(parent) / PROBE_SHARE;
	uint64_t ms = PROBE_MS + PROBE_MS_PER_RANK * (uint64_t)parent->ranks;

	return (int)(ms < most ? ms : most);
}

/* Excluded ranks are asked only where it matters whether they are well: that
 * takes time where they are not. While nobody has died, who is gone has left.
 */
static bool is_asked(const struct shrink_args *a, int rank)
{
	if (!a->excluded[rank])
		return true;
	return a->asks_excluded &&
	       !(a->unbroken && control_gone(a->parent->control, rank));
}

static dicomm_result_t probe(struct shrink_args *a, enum recovery_state own,
			     enum recovery_state *states)
{
	const struct dicomm_comm *parent = a->parent;
	const char **addresses =
		calloc((size_t)parent->ranks, sizeof(*addresses));
	uint8_t key[AUTH_KEY];
	dicomm_result_t status;

	if (!addresses)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_shrink: no memory for %d ranks",
			    parent->ranks);
	for (int r = 0; r < parent->ranks; r++) {
		addresses[r] = texts_get(parent->recoveries, (uint32_t)r);
		states[r] = is_asked(a, r) ? RECOVERY_IDLE : RECOVERY_GONE;
	}
	states[parent->rank] = own;
	comm_recovery_key(parent, key);
	status = recovery_probe(key, addresses, parent->ranks, parent->rank,
				states, probe_ms(parent),
				patience_ms(parent) / 2);
	auth_forget(key, sizeof(key));
	free(addresses);
	return status;
}

static dicomm_result_t find_survivors(struct shrink_args *a,
				      enum recovery_state own, bool *alive,
				      struct survivors *s)
{
	const struct dicomm_comm *parent = a->parent;
	uint64_t set = UINT64_C(0xcbf29ce484222325);
	enum recovery_state *states = a->states;
	bool late;

	TRY(probe(a, own, states));
	late = is_late(a);
	*s = (struct survivors){.first = -1, .planned = a->asks_excluded};
	for (int r = 0; r < parent->ranks; r++) {
		if (states[r] == RECOVERY_GONE && is_asked(a, r))
			s->planned = false;
		alive[r] = states[r] != RECOVERY_GONE && !a->excluded[r];
		if (late && alive[r] && states[r] == RECOVERY_IDLE) {
			leave_out(a, r);
			alive[r] = s->planned = false;
		}
		if (!alive[r])
			continue;
		if (s->first < 0)
			s->first = r;
		if (r == parent->rank)
			s->index = s->count;
		s->count++;
		set = (set ^ (uint64_t)r) * UINT64_C(0x100000001b3);
	}
	snprintf(s->phrase, sizeof(s->phrase), "%.120s %016llx",
		 id_secret(&parent->id), (unsigned long long)set);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_majority(const struct dicomm_comm *parent,
				      const bool *alive,
				      const struct survivors *s)
{
	int lost;

	if (s->planned || 2 * s->count > parent->ranks ||
	    (2 * s->count == parent->ranks && alive[0]))
		return DICOMM_SUCCESS;
	for (lost = 0; alive[lost];)
		lost++;
	return FAIL(
		DICOMM_ERR_REMOTE,
		"comm_shrink: only %d of %d ranks are left, without rank %d "
		"(%s): the others may go on without them",
		s->count, parent->ranks, lost,
		control_where(parent->control, lost));
}

/* Links are found by the old numbers. */
static dicomm_result_t inherit(struct dicomm_comm *comm,
			       struct dicomm_comm *parent, const bool *alive)
{
	uint32_t *was = calloc((size_t)comm->ranks, sizeof(*was)), n = 0;
	dicomm_result_t status;

	if (!was)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_shrink: no memory for %d ranks", comm->ranks);
	for (int r = 0; r < parent->ranks; r++)
		if (alive[r])
			was[n++] = (uint32_t)r;
	status = topology_inherit(comm, parent, was);
	free(was);
	return status;
}

static dicomm_result_t commit(const struct dicomm_comm *comm)
{
	const char **addresses =
		calloc((size_t)comm->ranks, sizeof(*addresses));
	struct commit_config c = {.rank = comm->rank,
				  .ranks = comm->ranks,
				  .recovery = comm->recovery,
				  .addresses = addresses,
				  .timeout_ms = patience_ms(comm)};
	char phrase[sizeof(comm->id.text) + 20];
	dicomm_result_t status;

	if (!addresses)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_shrink: no memory for %d ranks", comm->ranks);
	for (int r = 0; r < comm->ranks; r++)
		addresses[r] = texts_get(comm->recoveries, (uint32_t)r);
	snprintf(phrase, sizeof(phrase), "%s %016" PRIx64, id_secret(&comm->id),
		 comm->members[0].fresh);
	auth_key_from_text("dicomm commit", phrase, c.key);
	status = commit_all(&c);
	auth_forget(c.key, sizeof(c.key));
	auth_forget(phrase, sizeof(phrase));
	free(addresses);
	return status;
}

static dicomm_result_t join_them(const struct shrink_args *a, const bool *alive,
				 const struct survivors *s, int come_ms)
{
	struct dicomm_comm *parent = a->parent;
	dicomm_unique_id_t id;
	struct dicomm_comm *comm;
	dicomm_result_t status;

	TRY(recovery_new_id(s->first == parent->rank ? parent->recovery : NULL,
			    texts_get(parent->recoveries, (uint32_t)s->first),
			    s->phrase, &id));
	TRY(comm_create(&comm, s->count, s->index, &a->config));
	comm_listen(comm);
	status = inherit(comm, parent, alive);
	if (status == DICOMM_SUCCESS)
		status = comm_setup(comm, &id, come_ms);
	if (status == DICOMM_SUCCESS)
		status = commit(comm);
	/* Failing now would be too late: the others were told that this rank
	 * goes on. It only misses probes. */
	if (status == DICOMM_SUCCESS)
		recovery_serve(comm->recovery);
	comm_listen(NULL);
	if (status == DICOMM_SUCCESS) {
		*a->out = comm;
		return status;
	}
	status = fault_of_init(comm, status);
	comm_free(comm);
	return status;
}

/* A rank that knows of other deaths meets under another key. To a rank that
 * looks for it, it seems late, a stranger, or gone. All of these are temporary.
 */
static bool may_pass(dicomm_result_t status)
{
	return status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_TIMEOUT ||
	       status == DICOMM_ERR_INVALID_USAGE;
}

static dicomm_result_t go_rounds(struct shrink_args *a, bool *alive)
{
	const struct timespec pause = {0, PAUSE_NS};
	uint64_t most_ms = (uint64_t)patience_ms(a->parent);
	uint64_t begin = clock_ms(), late = begin + most_ms / 2;
	uint64_t end = begin + most_ms, until, now;
	uint64_t round_ms =
		ROUND_MS + ROUND_MS_PER_RANK * (uint64_t)a->parent->ranks;
	enum recovery_state own;
	struct survivors s;
	dicomm_result_t status;

	for (;;) {
		own = clock_ms() < late ? RECOVERY_SHRINKING : RECOVERY_LATE;
		recovery_set_state(a->parent->recovery, own);
		TRY(find_survivors(a, own, alive, &s));
		TRY(check_majority(a->parent, alive, &s));
		now = clock_ms(); /* probes may have taken long */
		until = now < late ? late : end;
		if (until > now + round_ms)
			until = now + round_ms;
		status = join_them(a, alive, &s,
				   until > now ? (int)(until - now) : 1);
		if (!may_pass(status))
			return status;
		now = clock_ms();
		if (now >= end)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "comm_shrink: %d ranks are alive, but not "
				    "all of them came",
				    s.count);
		/* Many ranks need more time to meet than few. A refusal, which
		 * takes no time, says nothing about that. */
		if (status == DICOMM_ERR_TIMEOUT && round_ms < most_ms)
			round_ms *= 2;
		nanosleep(&pause, NULL);
	}
}

static void free_shrink(void *arg)
{
	struct shrink_args *a = arg;

	comm_config_free(&a->config);
	free(a->states);
	free(a->left_out);
	free(a);
}

static dicomm_result_t shrink_now(void *arg)
{
	struct shrink_args *a = arg;
	size_t ranks = (size_t)a->parent->ranks;
	bool *alive = calloc(ranks, sizeof(*alive));
	dicomm_result_t status;

	a->unbroken = fault_settle(a->parent) == DICOMM_SUCCESS;
	a->states = calloc(ranks, sizeof(*a->states));
	a->left_out = calloc(ranks, sizeof(*a->left_out));
	if (alive && a->states && a->left_out)
		status = go_rounds(a, alive);
	else
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "comm_shrink: out of memory");
	recovery_set_state(a->parent->recovery, RECOVERY_IDLE);
	free(alive);
	free_shrink(a);
	return status;
}

dicomm_result_t dicomm_comm_shrink(dicomm_comm_t comm, const int *exclude,
				   int nexclude, dicomm_comm_t *newcomm,
				   const dicomm_config_t *config)
{
	CANCEL_HELD();
	static const char f[] = "comm_shrink";
	struct shrink_args *a;
	dicomm_result_t status;
	int kept = 0;

	if (newcomm)
		*newcomm = NULL;
	/* The communicator may be broken: shrink is for that. */
	TRY(comm_check_handle(comm, f));
	if (atomic_load(&comm->state) == COMM_STARTING)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm is still being initialised, or could not "
			    "be",
			    f);
	if (!newcomm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: newcomm is NULL",
			    f);
	if (nexclude < 0 || (nexclude && !exclude))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: exclude %p, nexclude %d", f,
			    (const void *)exclude, nexclude);
	a = calloc(1, sizeof(*a) + (size_t)comm->ranks);
	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory", f);
	a->parent = comm;
	a->out = newcomm;
	for (int i = 0; i < nexclude; i++) {
		if (exclude[i] < 0 || exclude[i] >= comm->ranks ||
		    exclude[i] == comm->rank) {
			free(a);
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "%s: exclude[%d] is %d: not another rank "
				    "of 0 .. %d",
				    f, i, exclude[i], comm->ranks - 1);
		}
		a->excluded[exclude[i]] = true;
	}
	for (int r = 0; r < comm->ranks; r++)
		kept += !a->excluded[r];
	a->asks_excluded = 2 * kept <= comm->ranks;
	status = comm_config_copy(&a->config, config ? config : &comm->config);
	if (status != DICOMM_SUCCESS) {
		free(a);
		return status;
	}
	a->config.blocking = 1;
	a->config.bootstrap.allgather = NULL; /* it would span the parent */
	return group_init(comm, shrink_now, free_shrink, a);
}
