/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs: communicators come and go; on them every operation, type and
 * operator, messages between pairs, blocking, queued or in groups, as each rank
 * likes; the settings are drawn as well. All results are those of the
 * definition. DICOMM_TEST_SEED says which program is the first.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/storm.h"
#include "tests/support/trial.h"
#include "transports/transport.h"

/* That one fell over slots of 1 MiB between nodes. */
#define FIRST 27
#define PROGRAMS 8
#define PROGRAMS_LONG 400
#define STEPS 30
#define MOST_RANKS 6
#define SLOTS 4 /* places for communicators */
#define TOGETHER 4
#define MESSAGES 12
#define PENDING 2 /* streams */
#define PATIENCE_S 60.0

struct program {
	unsigned seed;
	int nodes; /* 0: as many as there are */
};

struct walker {
	struct job_rank at[SLOTS]; /* comm: NULL where this rank is in none */
	dicomm_stream_t streams[PENDING];
	unsigned all; /* is equal on all ranks */
	unsigned own;
	int step;
};

static bool draw_one_in(unsigned *state, unsigned n)
{
	return storm_random(state, n) == 0;
}

/* Some ranks are late. */
static void dawdle(struct walker *w)
{
	if (draw_one_in(&w->own, 10))
		job_sleep_ms((int)storm_random(&w->own, 4));
}

/* Each rank has its own way to call: at once, or on a stream. */
static dicomm_stream_t draw_stream(struct walker *w)
{
	unsigned i = storm_random(&w->own, PENDING + 1);

	return i < PENDING ? w->streams[i] : NULL;
}

static void settle_streams(struct walker *w)
{
	for (int i = 0; i < PENDING; i++)
		JOB_TRY(dicomm_host_stream_synchronize(w->streams[i]));
}

static void shuffle(unsigned *state, int *order, int n)
{
	for (int i = 0; i < n; i++) {
		int j = (int)storm_random(state, (unsigned)i + 1);

		order[i] = order[j];
		order[j] = i;
	}
}

/* ---- collective operations ---- */

static struct trial draw_trial(struct walker *w)
{
	static const size_t counts[] = {0,    1,    2,    17,    100,  1000,
					3000, 5000, 9000, 30000, 60000};
	struct trial t = {.kind = storm_random(&w->all, TRIAL_KINDS)};

	t.type = element_types[storm_random(&w->all, (unsigned)element_ntypes)];
	do {
		unsigned o = storm_random(&w->all, (unsigned)element_nops + 1);

		t.op = o < (unsigned)element_nops ? element_ops[o]
						  : ELEMENT_PREMULSUM;
	} while (!element_op_fits(t.op, t.type));
	t.count =
		counts[storm_random(&w->all, sizeof(counts) / sizeof(*counts))];
	t.root = (int)storm_random(&w->all, 1000);
	t.seed = storm_random(&w->all, 1000);
	t.in_place = draw_one_in(&w->own, 2) && trial_can_be_in_place(t.kind);
	t.shared = draw_one_in(&w->own, 2);
	t.announced = draw_one_in(&w->own, 8);
	t.skew = draw_one_in(&w->own, 2) ? storm_random(&w->own, 64) : 0;
	return t;
}

/*
 * What is in a group may be in any order, but for what is on the same
 * communicator; what is in none comes in the order that all have in common. A
 * rank may do the one and its peers the other.
 */
static void collectives(struct walker *w)
{
	int n = 1 + (int)storm_random(&w->all, TOGETHER), slots[TOGETHER];
	bool grouped = draw_one_in(&w->own, 2);
	struct trial t[TOGETHER];
	int order[SLOTS];

	for (int i = 0; i < n; i++) {
		struct job_rank *at;

		slots[i] = (int)storm_random(&w->all, SLOTS);
		at = &w->at[slots[i]];
		t[i] = draw_trial(w);
		if (!at->comm)
			continue;
		t[i].root %= at->ranks;
		trial_fill(&t[i], at);
	}
	dawdle(w);
	shuffle(&w->own, order, SLOTS);
	if (grouped)
		JOB_TRY(dicomm_group_start());
	for (int o = 0; o < (grouped ? SLOTS : 1); o++)
		for (int i = 0; i < n; i++)
			if (t[i].comm && (!grouped || slots[i] == order[o]))
				JOB_TRY(trial_call(&t[i], draw_stream(w)));
	if (grouped)
		JOB_TRY(dicomm_group_end());
	settle_streams(w);
	for (int i = 0; i < n; i++)
		if (t[i].comm) {
			trial_check(&t[i]);
			trial_free(&t[i]);
		}
}

/* ---- messages between pairs ---- */

struct message {
	int from, to;
	size_t bytes;
	unsigned seed;
	uint8_t *sent, *received;
};

static uint8_t byte_at(const struct message *m, size_t i)
{
	return (uint8_t)(m->seed + i * 7 + (i >> 8));
}

static struct message draw_message(struct walker *w, const struct job_rank *at)
{
	static const size_t lengths[] = {0,    1,     8,     100,
					 4096, 20000, 70000, 500000};
	unsigned from = storm_random(&w->all, 1000);
	unsigned to = storm_random(&w->all, 1000);
	struct message m = {
		.bytes = lengths[storm_random(
			&w->all, sizeof(lengths) / sizeof(*lengths))],
		.seed = storm_random(&w->all, 1000)};

	if (!at->comm)
		return m;
	m.from = (int)from % at->ranks;
	m.to = (int)to % at->ranks;
	if (m.from == at->rank) {
		m.sent = malloc(m.bytes + 1);
		for (size_t i = 0; i < m.bytes; i++)
			m.sent[i] = byte_at(&m, i);
	}
	if (m.to == at->rank) {
		m.received = malloc(m.bytes + 1);
		memset(m.received, 0xEE, m.bytes + 1);
	}
	return m;
}

static void call_message(struct walker *w, const struct message *m,
			 const struct job_rank *at, bool sends, bool receives)
{
	job_doing("step %d: %zu bytes from %d to %d of %d", w->step, m->bytes,
		  m->from, m->to, at->ranks);
	if (sends && m->sent)
		JOB_TRY(dicomm_send(m->sent, m->bytes, DICOMM_UINT8, m->to,
				    at->comm, draw_stream(w)));
	if (receives && m->received)
		JOB_TRY(dicomm_recv(m->received, m->bytes, DICOMM_UINT8,
				    m->from, at->comm, draw_stream(w)));
}

static void check_message(struct walker *w, struct message *m)
{
	for (size_t i = 0; m->received && i < m->bytes; i++)
		JOB_CHECK(m->received[i] == byte_at(m, i),
			  "step %d, %zu bytes from %d to %d: byte %zu is %d "
			  "instead of %d",
			  w->step, m->bytes, m->from, m->to, i, m->received[i],
			  byte_at(m, i));
	JOB_CHECK(!m->received || m->received[m->bytes] == 0xEE,
		  "step %d: more than %zu bytes from %d to %d", w->step,
		  m->bytes, m->from, m->to);
	free(m->sent);
	free(m->received);
}

/* In a group, all sends may come before all receives, or after them. Who sends
 * to itself needs one. */
static void messages(struct walker *w)
{
	struct job_rank *at = &w->at[storm_random(&w->all, SLOTS)];
	int n = 1 + (int)storm_random(&w->all, MESSAGES);
	bool grouped = draw_one_in(&w->own, 2);
	bool sends_first = draw_one_in(&w->own, 2);
	struct message m[MESSAGES];

	for (int i = 0; i < n; i++) {
		m[i] = draw_message(w, at);
		grouped |= m[i].sent && m[i].received;
	}
	dawdle(w);
	if (grouped) {
		JOB_TRY(dicomm_group_start());
		for (int i = 0; i < n; i++)
			call_message(w, &m[i], at, sends_first, !sends_first);
		for (int i = 0; i < n; i++)
			call_message(w, &m[i], at, !sends_first, sends_first);
		JOB_TRY(dicomm_group_end());
	} else {
		for (int i = 0; i < n; i++)
			call_message(w, &m[i], at, true, true);
	}
	settle_streams(w);
	for (int i = 0; i < n; i++)
		check_message(w, &m[i]);
}

/* ---- communicators ---- */

/* Of a part of one communicator, in place of another. */
static void split(struct walker *w)
{
	struct job_rank *from = &w->at[storm_random(&w->all, SLOTS)];
	struct job_rank *to = &w->at[1 + storm_random(&w->all, SLOTS - 1)];
	int color = (int)storm_random(&w->own, 4) - 1;
	int key = (int)storm_random(&w->own, 10);
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t made = NULL;
	dicomm_result_t status;

	config.blocking = draw_one_in(&w->own, 2);
	dawdle(w);
	job_doing("step %d: split, color %d", w->step, color);
	if (from->comm) {
		status = dicomm_comm_split(
			from->comm, color < 0 ? DICOMM_SPLIT_NOCOLOR : color,
			key, &made, &config);
		JOB_TRY(job_settled(status, made, PATIENCE_S));
		JOB_CHECK(!made == (color < 0), "color %d, communicator %p",
			  color, (void *)made);
	}
	if (to->comm)
		JOB_TRY(dicomm_comm_destroy(to->comm));
	*to = (struct job_rank){.comm = made};
	if (made) {
		JOB_TRY(dicomm_comm_user_rank(made, &to->rank));
		JOB_TRY(dicomm_comm_count(made, &to->ranks));
	}
}

static void look(struct walker *w)
{
	struct job_rank *at = &w->at[storm_random(&w->own, SLOTS)];
	dicomm_stats_t stats = {.size = sizeof(stats)};
	char text[4000];

	if (!at->comm)
		return;
	JOB_TRY(dicomm_comm_explain(at->comm, "allreduce", 1000, DICOMM_FLOAT16,
				    text, sizeof(text)));
	JOB_TRY(dicomm_comm_stats(at->comm, &stats));
}

/* ---- a program ---- */

static void go_one_step(struct walker *w)
{
	switch (storm_random(&w->all, 8)) {
	case 0:
		split(w);
		break;
	case 1:
	case 2:
		messages(w);
		break;
	case 3:
		look(w);
		break;
	default:
		collectives(w);
	}
}

static void walk(struct job_rank *me)
{
	const struct program *p = me->arg;
	struct walker w = {.at = {*me},
			   .all = p->seed,
			   .own = p->seed + 104729u * (unsigned)(me->rank + 1)};
	char node[20];

	if (p->nodes) {
		snprintf(node, sizeof(node), "node%d", me->rank % p->nodes);
		setenv("DICOMM_HOSTID", node, 1);
	}
	JOB_TRY(dicomm_comm_init_rank(&w.at[0].comm, me->ranks, job_id(),
				      me->rank));
	for (int i = 0; i < PENDING; i++)
		JOB_TRY(dicomm_host_stream_create(&w.streams[i]));
	for (w.step = 0; w.step < STEPS; w.step++)
		go_one_step(&w);
	for (int i = 0; i < SLOTS; i++)
		JOB_TRY(dicomm_comm_destroy(w.at[i].comm));
	for (int i = 0; i < PENDING; i++)
		JOB_TRY(dicomm_host_stream_destroy(w.streams[i]));
}

static const char *const settings[][2] = {
	{"DICOMM_SHM_SLOTS=4", "DICOMM_SHM_SLOTS=64"},
	{"DICOMM_SHM_SLOT_BYTES=4K", "DICOMM_SHM_SLOT_BYTES=1M"},
	{"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA=off"},
	{"DICOMM_SHM_CMA_THRESHOLD=0", "DICOMM_SHM_MAP_THRESHOLD=0"},
	{"DICOMM_SPIN=0", "DICOMM_SPIN=1000"},
	{"DICOMM_DETERMINISTIC=1",
	 "DICOMM_ALGO=allreduce:^direct;allgather:^ring"},
};
#define SETTINGS (int)(sizeof(settings) / sizeof(*settings))

/* Nodes and transports, if they are not given; UCX where it may be used. */
static void draw_network(unsigned *state, struct program *p, struct job *job)
{
	const struct transport *ucx = transport_find("ucx");
	bool apart = draw_one_in(state, 4), nodes = draw_one_in(state, 3);
	bool by_ucx = p->seed % 3 == 0;
	char why[256];

	if (getenv("DICOMM_TRANSPORTS"))
		return;
	if (apart && by_ucx && !job_has_thread_sanitizer() &&
	    ucx->usable(why, sizeof(why)))
		job->env[0] = "DICOMM_TRANSPORTS=ucx";
	else if (apart)
		job->env[0] = "DICOMM_TRANSPORTS=tcp";
	else if (nodes && !job->threads)
		p->nodes = 2;
	if (p->nodes)
		job->env[0] = "DICOMM_PROBE=off";
}

static void draw_program(unsigned seed, struct program *p, struct job *job)
{
	unsigned state = seed * 2654435761u;
	int n = 0;

	*p = (struct program){.seed = seed};
	*job = (struct job){.run = walk,
			    .arg = p,
			    .ranks = 2 +
				     (int)storm_random(&state, MOST_RANKS - 1),
			    .threads = draw_one_in(&state, 4),
			    .bare = true,
			    .timeout_s = 60};
	draw_network(&state, p, job);
	n += job->env[0] != NULL;
	for (int i = 0; i < SETTINGS; i++)
		if (draw_one_in(&state, 3))
			job->env[n++] = settings[i][storm_random(&state, 2)];
}

static void describe(const struct program *p, const struct job *job, char *text,
		     size_t len)
{
	int at = snprintf(text, len, "program %u, %d %s", p->seed, job->ranks,
			  job->threads ? "threads" : "processes");

	if (p->nodes)
		at += snprintf(text + at, len - (size_t)at, " of %d nodes",
			       p->nodes);
	for (int i = 0; job->env[i]; i++)
		at += snprintf(text + at, len - (size_t)at, ", %s",
			       job->env[i]);
}

START_TEST(random_programs_give_the_right_results)
{
	const char *given = getenv("DICOMM_TEST_SEED");
	unsigned first = given ? (unsigned)strtoul(given, NULL, 10) : FIRST;
	unsigned n = job_is_long() ? PROGRAMS_LONG : PROGRAMS;
	char text[2000], what[500];
	struct program p;
	struct job job;

	for (unsigned seed = first; seed < first + n; seed++) {
		draw_program(seed, &p, &job);
		describe(&p, &job, what, sizeof(what));
		printf("%s\n", what);
		ck_assert_msg(job_try(&job, text, sizeof(text)), "%s: %s", what,
			      text);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("random");
	TCase *tcase = tcase_create("random");

	tcase_set_timeout(tcase, job_is_long() ? 3000 : 120);
	tcase_add_test(tcase, random_programs_give_the_right_results);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
