/* SPDX-License-Identifier: BSD-3-Clause */
/* Redistribution by real ranks: random layouts, sums of gradients, bytes by
 * counters, and calls that are refused. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/arithmetic.h"
#include "tests/support/cast.h"
#include "tests/support/element.h"
#include "tests/support/job.h"
#include "tests/support/layouts.h"
#include "tests/support/runner.h"

#define MOST_RANKS 8

struct random_run {
	unsigned seed;
	unsigned count;
	bool on_streams; /* else blocking */
};

static dicomm_stats_t stats_of(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats;
}

/* ---- random layouts ---- */

/* The boxes of this rank, for dicomm_redistribute_plan_own() */
static size_t own_boxes(const dicomm_box_t *boxes, size_t n, int rank,
			dicomm_box_t **out)
{
	size_t k = 0;

	*out = malloc((n + 1) * sizeof(**out));
	for (size_t i = 0; i < n; i++)
		if (boxes[i].rank == rank)
			(*out)[k++] = boxes[i];
	return k;
}

static dicomm_redistribute_t
plan_own(const struct job_rank *me, const struct layouts *l,
	 const dicomm_redistribute_config_t *config)
{
	dicomm_tensor_t t[LAYOUTS_TENSORS];
	dicomm_box_t *source, *target;
	dicomm_redistribute_t plan;

	for (size_t i = 0; i < l->n; i++) {
		t[i] = l->tensors[i];
		t[i].sources =
			own_boxes(t[i].source, t[i].sources, me->rank, &source);
		t[i].targets =
			own_boxes(t[i].target, t[i].targets, me->rank, &target);
		t[i].source = source;
		t[i].target = target;
	}
	JOB_TRY(dicomm_redistribute_plan_own(&plan, t, l->n, config, me->comm));
	for (size_t i = 0; i < l->n; i++) {
		free((void *)(size_t)t[i].source);
		free((void *)(size_t)t[i].target);
	}
	return plan;
}

static void check_targets(const struct job_rank *me, const struct layouts *l,
			  void *const *target, const char *text)
{
	char wrong[200];

	for (size_t i = 0; i < l->n; i++) {
		JOB_CHECK(layouts_right(l->tensors, i, me->rank, target[i],
					wrong, sizeof(wrong)),
			  "%s: %s", text, wrong);
		free(target[i]);
	}
}

static void run_once(const struct job_rank *me, unsigned seed,
		     dicomm_stream_t *streams)
{
	int m = 1 + (int)(seed % (unsigned)me->ranks);
	int n = 1 + (int)(seed / 3 % (unsigned)me->ranks);
	dicomm_redistribute_config_t config =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	const void *source[LAYOUTS_TENSORS];
	void *target[2][LAYOUTS_TENSORS];
	dicomm_redistribute_t plan;
	char text[600];
	struct layouts l;

	layouts_draw(&l, seed, me->ranks, m, n, seed % 5 ? 9 : 40);
	layouts_text(&l, text, sizeof(text));
	job_doing("seed %u, %d to %d ranks: %s", seed, m, n, text);
	config.way = (dicomm_way_t)(seed % 4);
	config.staging_bytes = seed % 3 ? 0 : 16384;
	if (seed % 2)
		plan = plan_own(me, &l, &config);
	else
		JOB_TRY(dicomm_redistribute_plan(&plan, l.tensors, l.n, &config,
						 me->comm));
	for (size_t i = 0; i < l.n; i++)
		source[i] = layouts_source(l.tensors, i, me->rank);
	/* Both runs share the staging memory. */
	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; i < l.n; i++)
			target[k][i] = layouts_target(&l.tensors[i], me->rank);
		JOB_TRY(dicomm_redistribute_run(plan, source, target[k],
						streams[k]));
	}
	for (int k = 0; k < 2; k++) {
		if (streams[k])
			JOB_TRY(dicomm_host_stream_synchronize(streams[k]));
		check_targets(me, &l, target[k], text);
	}
	for (size_t i = 0; i < l.n; i++)
		free((void *)(size_t)source[i]);
	JOB_TRY(dicomm_redistribute_free(plan));
	layouts_free(&l);
}

static void run_random(struct job_rank *me)
{
	const struct random_run *r = me->arg;
	dicomm_stream_t streams[2] = {NULL, NULL};

	for (int k = 0; k < 2 && r->on_streams; k++)
		JOB_TRY(dicomm_host_stream_create(&streams[k]));
	for (unsigned i = 0; i < r->count; i++)
		run_once(me, r->seed + i, streams);
	for (int k = 0; k < 2; k++)
		JOB_TRY(dicomm_host_stream_destroy(streams[k]));
}

START_TEST(random_layouts_are_as_defined)
{
	unsigned count = job_is_long() ? 400 : job_is_sanitized() ? 10 : 40;
	static const int ranks[] = {1, 2, 3, 4, 6, 8};
	struct random_run r = {.seed = (unsigned)_i * 1000,
			       .count = count,
			       .on_streams = _i % 2};

	job_run(&(struct job){.run = run_random,
			      .arg = &r,
			      .ranks = ranks[_i],
			      .threads = _i % 3 == 2,
			      .timeout_s = 50});
}
END_TEST

/* ---- unlike devices ---- */

/* Memory of the rank's device with these bytes */
static void *to_device(const struct job_rank *me, void *bytes, size_t n)
{
	void *at = NULL;

	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &at, n + 1));
	JOB_TRY(dicomm_comm_memcpy(me->comm, at, bytes, n, NULL));
	free(bytes);
	return at;
}

/* Devices take no weights of narrow floats. */
static void simplify(struct layouts *l)
{
	for (size_t i = 0; i < l->n; i++) {
		dicomm_tensor_t *t = &l->tensors[i];

		if (element_bytes(t->type) > 2)
			continue;
		free((void *)(size_t)t->weights);
		t->weights = NULL;
	}
}

static void run_on_device(const struct job_rank *me, unsigned seed)
{
	const void *source[LAYOUTS_TENSORS];
	void *target[LAYOUTS_TENSORS], *back;
	dicomm_redistribute_config_t config =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	dicomm_redistribute_info_t info = {.size = sizeof(info)};
	dicomm_redistribute_t plan;
	char text[600], wrong[200];
	struct layouts l;
	uint64_t before;

	layouts_draw(&l, seed, me->ranks, me->ranks, me->ranks, 6);
	simplify(&l);
	layouts_text(&l, text, sizeof(text));
	job_doing("seed %u: %s", seed, text);
	config.way = (dicomm_way_t)(seed % 4);
	JOB_TRY(dicomm_redistribute_plan(&plan, l.tensors, l.n, &config,
					 me->comm));
	for (size_t i = 0; i < l.n; i++) {
		const dicomm_tensor_t *t = &l.tensors[i];

		source[i] =
			to_device(me, layouts_source(l.tensors, i, me->rank),
				  layouts_bytes(t, me->rank, false));
		target[i] = to_device(me, layouts_target(t, me->rank),
				      layouts_bytes(t, me->rank, true));
	}
	JOB_TRY(dicomm_redistribute_info(plan, &info));
	before = stats_of(me).bytes_sent;
	JOB_TRY(dicomm_redistribute_run(plan, source, target, NULL));
	JOB_TRY(dicomm_comm_stream_synchronize(me->comm, NULL));
	JOB_CHECK(stats_of(me).bytes_sent - before == info.bytes_sent,
		  "seed %u: %zu bytes sent, info says %zu", seed,
		  (size_t)(stats_of(me).bytes_sent - before),
		  (size_t)info.bytes_sent);
	for (size_t i = 0; i < l.n; i++) {
		size_t n = layouts_bytes(&l.tensors[i], me->rank, true);

		back = malloc(n + 1);
		JOB_TRY(dicomm_comm_memcpy(me->comm, back, target[i], n, NULL));
		JOB_CHECK(layouts_right(l.tensors, i, me->rank, back, wrong,
					sizeof(wrong)),
			  "seed %u, %s: %s", seed, text, wrong);
		free(back);
		JOB_TRY(dicomm_mem_free((void *)(size_t)source[i]));
		JOB_TRY(dicomm_mem_free(target[i]));
	}
	JOB_TRY(dicomm_redistribute_free(plan));
	layouts_free(&l);
}

static void refuse_on_device(const struct job_rank *me)
{
	static const double half[] = {0.5};
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	dicomm_box_t source = {.rank = 0, .hi = {8}}, target = source;
	dicomm_redistribute_t plan;

	target.rank = 1;
	t.type = DICOMM_BFLOAT16;
	t.axes = 1;
	t.shape[0] = 8;
	t.source = &source;
	t.target = &target;
	t.sources = t.targets = 1;
	t.weights = half;
	JOB_REFUSED(dicomm_redistribute_plan(&plan, &t, 1, NULL, me->comm),
		    DICOMM_ERR_UNSUPPORTED, "redistribute");
}

static void run_on_devices(struct job_rank *me, struct gadget *g)
{
	(void)g;
	for (unsigned i = 0; i < (job_is_sanitized() ? 4 : 12); i++)
		run_on_device(me, 5000 + i);
	refuse_on_device(me);
}

START_TEST(unlike_devices_redistribute)
{
	struct cast cast = {.run = run_on_devices};

	memcpy(cast.device, cast_unlike, sizeof(cast.device));
	cast_play(&cast, CAST_DEVICES);
}
END_TEST

/* ---- a boundary between stages ---- */

#define ROWS 512
#define COLUMNS 256

/* Ranks 0 to 3 have a tensor whole; ranks 4 and 5 want it whole. */
static dicomm_redistribute_t plan_boundary(const struct job_rank *me,
					   dicomm_way_t way)
{
	static const int ranks[] = {0, 1, 2, 3, 4, 5};
	dicomm_redistribute_config_t config =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	dicomm_mesh_t mesh = {.dims = 1, .extent = {4}, .ranks = ranks};
	dicomm_box_t source[4], target[2];
	dicomm_redistribute_t plan;

	t.type = DICOMM_FLOAT32;
	t.axes = 2;
	t.shape[0] = ROWS;
	t.shape[1] = COLUMNS;
	JOB_TRY(dicomm_mesh_boxes(&mesh, 2, t.shape, 0, source));
	mesh.extent[0] = 2;
	mesh.ranks = ranks + 4;
	JOB_TRY(dicomm_mesh_boxes(&mesh, 2, t.shape, 0, target));
	t.source = source;
	t.sources = 4;
	t.target = target;
	t.targets = 2;
	config.way = way;
	JOB_TRY(dicomm_redistribute_plan(&plan, &t, 1, &config, me->comm));
	return plan;
}

static void cross_boundary(struct job_rank *me)
{
	static float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
	uint64_t *board = job_board();
	const void *source = a;
	void *target = b;

	for (dicomm_way_t w = DICOMM_WAY_DIRECT; w <= DICOMM_WAY_LEADER; w++) {
		dicomm_redistribute_t plan = plan_boundary(me, w);
		dicomm_redistribute_info_t info = {.size = sizeof(info)};
		uint64_t before = stats_of(me).bytes_sent, sent = 0;

		for (int i = 0; i < ROWS * COLUMNS; i++)
			a[i] = (float)i;
		memset(b, 0, sizeof(b));
		JOB_TRY(dicomm_redistribute_run(plan, &source, &target, NULL));
		JOB_TRY(dicomm_redistribute_info(plan, &info));
		board[me->rank] = stats_of(me).bytes_sent - before;
		JOB_CHECK(board[me->rank] == info.bytes_sent,
			  "%zu bytes sent, info says %zu",
			  (size_t)board[me->rank], (size_t)info.bytes_sent);
		JOB_CHECK(me->rank < 4 || !memcmp(a, b, sizeof(a)),
			  "way %d: rank %d has something else", (int)w,
			  me->rank);
		job_barrier();
		for (int r = 0; r < 4; r++)
			sent += board[r];
		JOB_CHECK(sent == sizeof(a) * (w == DICOMM_WAY_DIRECT ? 2 : 1),
			  "way %d: %zu bytes over the boundary, the tensor has "
			  "%zu",
			  (int)w, (size_t)sent, sizeof(a));
		job_barrier();
		JOB_TRY(dicomm_redistribute_free(plan));
	}
}

START_TEST(one_copy_crosses_a_boundary)
{
	job_run(&(struct job){.run = cross_boundary, .ranks = 6});
}
END_TEST

/* ---- gradients ---- */

#define WIDTH 37
#define REPLICAS 3

struct gradients {
	int degree[REPLICAS]; /* 0: there is none */
	dicomm_datatype_t type;
	double bound;
};

/* As the type has it */
static double gradient(dicomm_datatype_t type, int replica, int i)
{
	uint8_t x[8];

	arithmetic_store(type, x, sin(i * 0.7 + replica) * (1 + replica));
	return arithmetic_load(type, x);
}

/* The float64 mean, rounded once to the type: no result is nearer. `bound` is
 * half of its last place, beside what float32 adds.
 *
 * Each replica has a gradient of its own, sharded by its degree along axis 1;
 * all get the mean over the tokens, in place. */
static void sum_gradients(struct job_rank *me)
{
	static const double tokens[REPLICAS] = {3000, 5000, 1100};
	const struct gradients *g = me->arg;
	size_t elem = g->type == DICOMM_FLOAT32 ? 4 : 2;
	double weights[REPLICAS], all = 0, worst = 0;
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	dicomm_box_t boxes[MOST_RANKS];
	int ranks[MOST_RANKS], n = 0, mine = -1, terms = 0;
	uint8_t *board = (uint8_t *)job_board(), *grads;
	dicomm_redistribute_t plan;
	const void *source;
	void *target;

	t.type = g->type;
	t.axes = 2;
	t.shape[0] = 8;
	t.shape[1] = WIDTH;
	for (; terms < REPLICAS && g->degree[terms]; terms++) {
		dicomm_mesh_t mesh = {.dims = 1,
				      .extent = {g->degree[terms]},
				      .ranks = ranks + n};

		mesh.placements[0].kind = DICOMM_SHARD;
		mesh.placements[0].axis = 1;
		for (int i = 0; i < g->degree[terms]; i++) {
			ranks[n + i] = n + i;
			if (n + i == me->rank)
				mine = terms;
		}
		JOB_TRY(dicomm_mesh_boxes(&mesh, 2, t.shape, terms, boxes + n));
		n += g->degree[terms];
		all += tokens[terms];
	}
	for (int i = 0; i < terms; i++)
		weights[i] = tokens[i] / all;
	t.source = t.target = boxes;
	t.sources = t.targets = (size_t)n;
	t.terms = terms;
	t.weights = weights;
	grads = calloc(8 * WIDTH, elem);
	for (int64_t x = 0, k = 0; x < 8; x++)
		for (int64_t y = boxes[me->rank].lo[1];
		     y < boxes[me->rank].hi[1]; y++, k++)
			arithmetic_store(
				g->type, grads + (size_t)k * elem,
				gradient(g->type, mine, (int)(x * WIDTH + y)));
	source = target = grads;
	JOB_TRY(dicomm_redistribute_plan(&plan, &t, 1, NULL, me->comm));
	JOB_TRY(dicomm_redistribute_run(plan, &source, &target, NULL));
	board += (size_t)mine * 8 * WIDTH * elem;
	for (int64_t x = 0, k = 0; x < 8; x++)
		for (int64_t y = boxes[me->rank].lo[1];
		     y < boxes[me->rank].hi[1]; y++, k++) {
			double want = 0, got;
			int i = (int)(x * WIDTH + y);

			for (int r = 0; r < terms; r++)
				want += weights[r] * gradient(g->type, r, i);
			got = arithmetic_load(g->type,
					      grads + (size_t)k * elem);
			worst = fmax(worst, (fabs(got - want) - 1e-6) /
						    fmax(fabs(want), 1e-9));
			memcpy(board + (size_t)i * elem,
			       grads + (size_t)k * elem, elem);
		}
	JOB_CHECK(worst <= g->bound, "off by %g, bound %g", worst, g->bound);
	job_barrier();
	board = job_board();
	for (int r = 1; r < terms; r++)
		JOB_CHECK(!memcmp(board, board + (size_t)r * 8 * WIDTH * elem,
				  8 * WIDTH * elem),
			  "replicas 0 and %d have unlike bits", r);
	JOB_TRY(dicomm_redistribute_free(plan));
	free(grads);
}

START_TEST(gradients_of_unlike_degrees_are_the_mean_over_tokens)
{
	static const int degrees[][REPLICAS] = {
		{2, 4}, {1, 2, 4}, {2, 3}, {3, 4}};
	static const struct {
		dicomm_datatype_t type;
		double bound;
	} types[] = {{DICOMM_FLOAT32, 1e-5},
		     {DICOMM_BFLOAT16, 0x1.01p-8},
		     {DICOMM_FLOAT16, 0x1.01p-11}};
	struct gradients g = {.type = types[_i % 3].type,
			      .bound = types[_i % 3].bound};
	int ranks = 0;

	memcpy(g.degree, degrees[_i / 3], sizeof(g.degree));
	for (int i = 0; i < REPLICAS; i++)
		ranks += g.degree[i];
	job_run(&(struct job){.run = sum_gradients, .arg = &g, .ranks = ranks});
}
END_TEST

/* ---- refusals ---- */

/* A tensor of 8 elements, half of it on each of two ranks, wanted the other way
 * round */
struct swap {
	dicomm_tensor_t t;
	dicomm_box_t source[3], target[3];
	dicomm_redistribute_config_t config;
};

static void make_swap(struct swap *s)
{
	memset(s, 0, sizeof(*s));
	s->t = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
	s->config = (dicomm_redistribute_config_t)
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	s->t.name = "w";
	s->t.type = DICOMM_INT32;
	s->t.axes = 1;
	s->t.shape[0] = 8;
	for (int r = 0; r < 2; r++) {
		s->source[r] = (dicomm_box_t){.rank = r};
		s->source[r].lo[0] = 4 * r;
		s->source[r].hi[0] = 4 * r + 4;
		s->target[r] = s->source[r];
		s->target[r].rank = 1 - r;
	}
	s->t.source = s->source;
	s->t.target = s->target;
	s->t.sources = s->t.targets = 2;
}

static void refused(const struct job_rank *me, const struct swap *s,
		    const char *words)
{
	dicomm_redistribute_t plan;

	job_doing("to be refused: %s", words);
	JOB_REFUSED(
		dicomm_redistribute_plan(&plan, &s->t, 1, &s->config, me->comm),
		DICOMM_ERR_INVALID_ARGUMENT, words);
	JOB_CHECK(!plan, "a plan that was refused");
}

static void refuse_layouts(struct job_rank *me)
{
	static const double nan_weight[] = {NAN}, half[] = {0.5};
	struct swap s;

#define REFUSED(words, change)          \
	do {                            \
		make_swap(&s);          \
		change;                 \
		refused(me, &s, words); \
	} while (0)
	REFUSED("tensor 0 (w): axis 0, interval 3:4 of [3:4]: no rank has term "
		"0; ranks 1 want it",
		s.source[0].hi[0] = 3);
	REFUSED("tensor 0 (w): axis 0, interval 6:8 of [6:8]: no rank wants "
		"it; it is on ranks 1",
		s.target[1].hi[0] = 6);
	REFUSED("tensor 0 (w): source box 1 of rank 1: axis 0, interval 4:9: "
		"not in 0:8",
		s.source[1].hi[0] = 9);
	REFUSED("target box 0 of rank 1: axis 0, interval 5:4",
		s.target[0].lo[0] = 5);
	REFUSED("source box 1: rank 7: not in 0 .. 1", s.source[1].rank = 7);
	REFUSED("target box 0: rank -1", s.target[0].rank = -1);
	REFUSED("term 1: not in 0 .. 0", s.source[1].term = 1);
	REFUSED("interval 0:4 of [0:4]: no rank has term 1",
		(s.source[1].term = 1, s.t.terms = 2, s.source[1].lo[0] = 4));
	REFUSED("terms -1", s.t.terms = -1);
	REFUSED("type 15: no such", s.t.type = (dicomm_datatype_t)15);
	REFUSED("axes 9", s.t.axes = 9);
	REFUSED("axes 0", s.t.axes = 0);
	REFUSED("shape of axis 0 is -1", s.t.shape[0] = -1);
	REFUSED("source is NULL", s.t.source = NULL);
	REFUSED("tensor 0: size 3", s.t.size = 3);
	REFUSED("offset -1 is below 0", s.source[0].offset = -1);
	REFUSED("stride -2 of axis 0", s.source[0].stride[0] = -2);
	REFUSED("more than can be addressed",
		s.source[0].stride[0] = INT64_MAX / 2);
	REFUSED("put several elements in one place",
		(s.t.axes = 2, s.t.shape[1] = 2, s.target[0].hi[1] = 2,
		 s.target[0].stride[0] = 1, s.target[0].stride[1] = 1,
		 s.target[1].hi[1] = s.source[0].hi[1] = s.source[1].hi[1] =
			 2));
	REFUSED("terms 2: type bool has no sum",
		(s.t.type = DICOMM_BOOL, s.t.terms = 2));
	REFUSED("takes no weights", s.t.weights = half);
	REFUSED("weight 0 is nan",
		(s.t.weights = nan_weight, s.t.type = DICOMM_FLOAT32));
	REFUSED("way 4", s.config.way = (dicomm_way_t)4);
	REFUSED("staging_bytes 100: below", s.config.staging_bytes = 100);
	REFUSED("config: size 1", s.config.size = 1);
	REFUSED("config: allow_unwanted -1: not 0 or 1",
		s.config.allow_unwanted = -1);
	REFUSED("config: local 7: not 0 or 1", s.config.local = 7);
	REFUSED("target boxes 0 and 1 of rank 1: offsets 0 and 3, strides [1] "
		"and [1] put several elements in one place",
		(s.target[1].rank = 1, s.target[1].offset = 3));
#undef REFUSED
}

START_TEST(layouts_that_do_not_fit_are_refused_by_name)
{
	job_run(&(struct job){.run = refuse_layouts, .ranks = 2});
}
END_TEST

static void refuse_calls(struct job_rank *me)
{
	int data[4] = {1, 2, 3, 4}, got[4] = {0};
	const void *source = data;
	void *target = got, *none = NULL;
	dicomm_redistribute_t plan = NULL;
	dicomm_redistribute_info_t info = {.size = 1};
	uint64_t sent, received;
	struct swap s;
	char text[600];

	make_swap(&s);
	JOB_REFUSED(dicomm_redistribute_plan(NULL, &s.t, 1, NULL, me->comm),
		    DICOMM_ERR_INVALID_ARGUMENT, "plan is NULL");
	JOB_REFUSED(dicomm_redistribute_plan(&plan, NULL, 1, NULL, me->comm),
		    DICOMM_ERR_INVALID_ARGUMENT, "tensors is NULL");
	JOB_TRY(dicomm_group_start());
	JOB_REFUSED(dicomm_redistribute_plan(&plan, &s.t, 1, NULL, me->comm),
		    DICOMM_ERR_INVALID_USAGE, "not in a group");
	JOB_TRY(dicomm_group_end());
	make_swap(&s);
	JOB_REFUSED(
		dicomm_redistribute_plan_own(&plan, &s.t, 1, NULL, me->comm),
		DICOMM_ERR_INVALID_ARGUMENT, "box of rank");
	JOB_TRY(dicomm_redistribute_plan(&plan, &s.t, 1, NULL, me->comm));
	JOB_REFUSED(dicomm_redistribute_run(NULL, &source, &target, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "plan");
	JOB_REFUSED(dicomm_redistribute_run(plan, NULL, &target, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "source of tensor 0 is NULL");
	JOB_REFUSED(dicomm_redistribute_run(plan, &source, &none, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "target of tensor 0 is NULL");
	JOB_REFUSED(dicomm_redistribute_run(plan, &source, &target, data),
		    DICOMM_ERR_INVALID_ARGUMENT, "stream");
	JOB_TRY(dicomm_group_start());
	JOB_REFUSED(dicomm_redistribute_run(plan, &source, &target, NULL),
		    DICOMM_ERR_INVALID_USAGE, "not in a group");
	JOB_TRY(dicomm_group_end());
	JOB_REFUSED(dicomm_redistribute_info(plan, &info),
		    DICOMM_ERR_INVALID_ARGUMENT, "size 1");
	JOB_REFUSED(dicomm_redistribute_link(plan, 2, &sent, &received),
		    DICOMM_ERR_INVALID_ARGUMENT, "peer 2");
	JOB_REFUSED(dicomm_redistribute_explain(plan, text, 0),
		    DICOMM_ERR_INVALID_ARGUMENT, "len is 0");
	/* Nothing was written, and all still works. */
	JOB_CHECK(!got[0] && !got[3], "a refused call wrote %d", got[0]);
	JOB_TRY(dicomm_redistribute_run(plan, &source, &target, NULL));
	JOB_CHECK(!memcmp(data, got, sizeof(got)), "%d %d %d %d", got[0],
		  got[1], got[2], got[3]);
	JOB_TRY(dicomm_redistribute_link(plan, 1 - me->rank, &sent, &received));
	JOB_CHECK(sent == 16 && received == 16, "%d sent, %d received",
		  (int)sent, (int)received);
	JOB_TRY(dicomm_redistribute_explain(plan, text, sizeof(text)));
	JOB_CHECK(strstr(text, "* direct"), "%s", text);
	JOB_TRY(dicomm_redistribute_free(plan));
	JOB_REFUSED(dicomm_redistribute_free(plan), DICOMM_ERR_INVALID_ARGUMENT,
		    "redistribute_free: plan");
	JOB_REFUSED(dicomm_redistribute_run(plan, &source, &target, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "redistribute_run: plan");
}

/* Rank 2 is told something else than ranks 0 and 1, which may be invalid. */
static void differ(struct job_rank *me)
{
	static const double weights[] = {0.25, 0.75}, others[] = {0.25, 0.5};
	dicomm_redistribute_t plan;
	struct swap s;

#define DIFFER(call, n, words, change)                                 \
	do {                                                           \
		make_swap(&s);                                         \
		if (me->rank == 2)                                     \
			change;                                        \
		job_doing("to differ: %s", words);                     \
		JOB_REFUSED(call(&plan, &s.t, n, &s.config, me->comm), \
			    DICOMM_ERR_INVALID_USAGE,                  \
			    "ranks 0 and 2 were given different "      \
			    "descriptions: " words " on rank 2");      \
		JOB_CHECK(!plan, "a plan that was refused");           \
	} while (0)
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): source box 0: offset is 0 on rank 0, 1",
	       s.source[0].offset = 1);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): source box 0: hi of axis 0 is 4 on rank 0, 3",
	       s.source[0].hi[0] = 3);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): target box 1: rank is 0 on rank 0, -5",
	       s.target[1].rank = -5);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): target box 0: stride of axis 0 is 0 on rank 0, 2",
	       s.target[0].stride[0] = 2);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): axes is 1 on rank 0, 9", s.t.axes = 9);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): sources is 2 on rank 0, 1", s.t.sources = 1);
	DIFFER(dicomm_redistribute_plan, 1,
	       "tensor 0 (w): source that is not NULL is 1 on rank 0, 0",
	       s.t.source = NULL);
	DIFFER(dicomm_redistribute_plan, 1,
	       "staging_bytes of config is 0 on rank 0, 8192",
	       s.config.staging_bytes = 8192);
	DIFFER(dicomm_redistribute_plan, me->rank == 2 ? 0 : 1,
	       "n is 1 on rank 0, 0", (void)0);
	DIFFER(dicomm_redistribute_plan_own, me->rank == 2 ? 0 : 1,
	       "n is 1 on rank 0, 0", (void)0);
#undef DIFFER
	make_swap(&s);
	s.t.type = DICOMM_FLOAT32;
	s.t.terms = 2;
	s.t.weights = me->rank == 2 ? others : weights;
	JOB_REFUSED(dicomm_redistribute_plan(&plan, &s.t, 1, NULL, me->comm),
		    DICOMM_ERR_INVALID_USAGE,
		    "tensor 0 (w): weight 1 is 0.75 on rank 0, 0.5 on rank 2");
	make_swap(&s);
	s.t.sources = s.t.targets = 0;
	s.t.shape[0] = me->rank == 2 ? 7 : 8;
	JOB_REFUSED(
		dicomm_redistribute_plan_own(&plan, &s.t, 1, NULL, me->comm),
		DICOMM_ERR_INVALID_USAGE,
		"tensor 0 (w): shape of axis 0 is 8 on rank 0, 7 on rank 2");
	make_swap(&s);
	JOB_REFUSED(dicomm_redistribute_plan(&plan, me->rank == 2 ? NULL : &s.t,
					     1, NULL, me->comm),
		    DICOMM_ERR_INVALID_USAGE,
		    "tensors that are not NULL is 1 on rank 0, 0 on rank 2");
}

START_TEST(ranks_that_disagree_are_told_in_what)
{
	job_run(&(struct job){.run = differ, .ranks = 3});
}
END_TEST

START_TEST(calls_that_are_wrong_are_refused_by_name)
{
	job_run(&(struct job){.run = refuse_calls, .ranks = 2});
}
END_TEST

/* ---- a rank dies ---- */

/* Rank 0 wants what rank 1 has, which dies. */
static void outlive(struct job_rank *me)
{
	int data[4] = {1, 2, 3, 4}, got[4] = {0};
	const void *source = data;
	void *target = got;
	dicomm_redistribute_t plan;
	dicomm_result_t status;
	struct swap s;

	make_swap(&s);
	JOB_TRY(dicomm_redistribute_plan(&plan, &s.t, 1, NULL, me->comm));
	/* Else rank 1 might die while rank 0 still agrees on the plan. */
	job_barrier();
	if (me->rank)
		raise(SIGKILL);
	job_doing("to hear of the death of rank 1");
	/* What rank 0 sends may not need rank 1; what it receives does. */
	status = dicomm_redistribute_run(plan, &source, &target, NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE, "status %d", (int)status);
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 1"), "%s",
		  dicomm_get_last_error(me->comm));
	JOB_REFUSED(dicomm_redistribute_run(plan, &source, &target, NULL),
		    DICOMM_ERR_REMOTE, "rank 1");
	JOB_CHECK(!got[0] && !got[3], "rank 0 got %d of nobody", got[0]);
	JOB_TRY(dicomm_redistribute_free(plan));
}

START_TEST(a_death_ends_a_run_by_name)
{
	job_run(&(struct job){.run = outlive, .ranks = 2, .may_die = 1 << 1});
}
END_TEST

int main(void)
{
	Suite *s = suite_create("redistribute");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, random_layouts_are_as_defined, 0, 6);
	tcase_add_test(t, unlike_devices_redistribute);
	tcase_add_test(t, one_copy_crosses_a_boundary);
	tcase_add_loop_test(
		t, gradients_of_unlike_degrees_are_the_mean_over_tokens, 0, 12);
	tcase_add_test(t, layouts_that_do_not_fit_are_refused_by_name);
	tcase_add_test(t, ranks_that_disagree_are_told_in_what);
	tcase_add_test(t, calls_that_are_wrong_are_refused_by_name);
	tcase_add_test(t, a_death_ends_a_run_by_name);
	suite_add_tcase(s, t);
	return runner_main(s);
}
