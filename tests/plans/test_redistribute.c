/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of redistributions: any layouts, in every way, beside a definition in
 * plain loops. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plans/redist.h"
#include "tests/support/job.h"
#include "tests/support/layouts.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"

static const struct estimate_params params = {
	.latency_ps = 1000000,
	.per_message_ps = 100000,
	.bytes_per_s = 10000000000,
	.reduce_bytes_per_s = 5000000000,
	.copy_bytes_per_s = 10000000000,
	.slot_bytes = 32768,
	.node_ranks = 1,
	.node_cores = 1,
};

static const int sizes[] = {1, 2, 3, 4, 6, 8};
#define SIZES 6

static void run_layouts(unsigned seed, int m, int n, unsigned most,
			dicomm_way_t way, uint64_t staging)
{
	int larger = m > n ? m : n;
	/* All disjoint, all the same, or some of both */
	int ranks = seed % 3 == 0 ? m + n
		    : seed % 3 == 1
			    ? larger
			    : larger + (int)(seed / 3) % (m + n - larger + 1);
	struct redist_request r = {.params = params,
				   .way = way,
				   .staging = staging,
				   .ranks = ranks};
	struct layouts l;
	char text[600], what[800];

	layouts_draw(&l, seed, ranks, m, n, most);
	layouts_text(&l, text, sizeof(text));
	snprintf(what, sizeof(what), "seed %u, %d to %d of %d ranks, %s", seed,
		 m, n, ranks, text);
	r.tensors = l.tensors;
	r.n = l.n;
	redist_run(&r, what);
	layouts_free(&l);
}

/* Bar: 10,000 layouts. A case has a sixth of them. */
START_TEST(random_layouts_are_as_defined)
{
	unsigned each = job_is_sanitized() || job_is_short() ? 20 : 70;

	if (job_is_long())
		each *= 10;
	for (int k = 0; k < SIZES; k++)
		for (unsigned i = 0; i < 4 * each; i++)
			run_layouts((unsigned)_i * 100000 +
					    (unsigned)k * 10000 + i,
				    sizes[_i], sizes[k], 7,
				    (dicomm_way_t)(i % WAYS), i % 5 ? 0 : 8192);
}
END_TEST

/* ---- many ranks, many tensors ---- */

/* A tensor on a mesh of replicas, each of which shards it by `degree` */
static dicomm_box_t *shard(const int *ranks, int replicas, int degree,
			   const dicomm_tensor_t *t, int axis)
{
	dicomm_mesh_t mesh = {
		.dims = 2, .extent = {replicas, degree}, .ranks = ranks};
	dicomm_box_t *boxes =
		malloc((size_t)(replicas * degree) * sizeof(*boxes));

	mesh.placements[1].kind = axis < 0 ? DICOMM_REPLICATE : DICOMM_SHARD;
	mesh.placements[1].axis = axis < 0 ? 0 : axis;
	ck_assert_int_eq(dicomm_mesh_boxes(&mesh, t->axes, t->shape, 0, boxes),
			 DICOMM_SUCCESS);
	return boxes;
}

/* Tensors of a layer: sharded by columns, by rows, or replicated */
#define LAYER 12
static const struct {
	int64_t rows, columns;
	int axis;
} layer[LAYER] = {{64, 0, -1},  {64, 64, 0}, {64, 16, 0},  {64, 16, 0},
		  {64, 64, 1},  {64, 0, -1}, {176, 64, 0}, {176, 64, 0},
		  {64, 176, 1}, {64, 0, -1}, {8, 0, -1},   {256, 64, 0}};

static void make_layer(dicomm_tensor_t *t, const int *ranks, int from_replicas,
		       int from_degree, int to_replicas, int to_degree)
{
	for (int i = 0; i < LAYER; i++) {
		t[i] = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
		t[i].type = DICOMM_BFLOAT16;
		t[i].axes = layer[i].columns ? 2 : 1;
		t[i].shape[0] = layer[i].rows;
		t[i].shape[1] = layer[i].columns;
		t[i].sources = (size_t)(from_replicas * from_degree);
		t[i].targets = (size_t)(to_replicas * to_degree);
		t[i].source = shard(ranks, from_replicas, from_degree, &t[i],
				    layer[i].axis);
		t[i].target = shard(ranks + t[i].sources, to_replicas,
				    to_degree, &t[i], layer[i].axis);
	}
}

static void free_layer(dicomm_tensor_t *t)
{
	for (int i = 0; i < LAYER; i++) {
		free((void *)(uintptr_t)t[i].source);
		free((void *)(uintptr_t)t[i].target);
	}
}

#define MANY 1000

/* Bar: 2 s and 256 MiB on rank 0, all tensors of the model in one plan. */
START_TEST(a_large_plan_is_made_in_time_and_memory)
{
	dicomm_tensor_t t[LAYER], *all = calloc(MANY, sizeof(*all));
	struct redist_request r = {
		.tensors = all, .n = MANY, .ranks = 1536, .params = params};
	struct redist_plan *plan;
	struct rusage usage;
	int ranks[1536];
	clock_t begin;
	double s;

	for (int i = 0; i < 1536; i++)
		ranks[i] = i;
	r.params.node_ranks = r.params.node_cores = 1536;
	make_layer(t, ranks, 128, 8, 32, 16);
	for (int i = 0; i < MANY; i++)
		all[i] = t[i % LAYER];
	begin = clock();
	ck_assert_int_eq(redist_plan_make(&r, &plan), DICOMM_SUCCESS);
	s = (double)(clock() - begin) / CLOCKS_PER_SEC;
	getrusage(RUSAGE_SELF, &usage);
	printf("1,024 to 512 ranks, %d tensors: %.2f s, %ld KiB, %s, %zu "
	       "messages of rank 0 in %u rounds\n",
	       MANY, s, usage.ru_maxrss, redist_way_name(plan->way),
	       (size_t)plan->messages_sent, plan->nrounds);
	if (!job_is_sanitized()) {
		ck_assert_double_le(s, 2);
		ck_assert_int_le(usage.ru_maxrss, 256 << 10);
	}
	redist_plan_free(plan);
	free_layer(t);
	free(all);
}
END_TEST

/* ---- messages ---- */

/* Gradients of a layer, of a replica of degree 2 and one of degree 4, of which
 * each gets the sum. */
START_TEST(messages_are_as_many_as_pairs_of_ranks)
{
	static const int ranks[] = {0, 1, 2, 3, 4, 5};
	dicomm_tensor_t t[LAYER];
	struct redist_request r = {.tensors = t,
				   .n = LAYER,
				   .ranks = 6,
				   .params = params,
				   .way = DICOMM_WAY_DIRECT};
	uint64_t many, one;

	make_layer(t, ranks, 1, 2, 1, 4);
	for (int i = 0; i < LAYER; i++) {
		dicomm_box_t *both = malloc(6 * sizeof(*both));

		memcpy(both, t[i].source, 2 * sizeof(*both));
		memcpy(both + 2, t[i].target, 4 * sizeof(*both));
		free((void *)(uintptr_t)t[i].source);
		free((void *)(uintptr_t)t[i].target);
		for (int k = 2; k < 6; k++)
			both[k].term = 1;
		t[i].source = both;
		t[i].target = NULL;
		t[i].sources = t[i].targets = 6;
		t[i].terms = 2;
		/* Small ones: no piece is a message of its own. */
		t[i].type = DICOMM_UINT8;
	}
	for (int i = 0; i < LAYER; i++)
		t[i].target = t[i].source;
	many = redist_run(&r, "gradients of a layer").messages;
	r.n = 2;
	one = redist_run(&r, "gradients of two tensors").messages;
	printf("gradients of a layer, degrees 2 and 4: %zu messages for %d "
	       "tensors, %zu for 2\n",
	       (size_t)many, LAYER, (size_t)one);
	/* Ranks that have a part of one tensor in common exchange terms, and
	 * results: each of 2 with each of 4, both ways, twice. */
	ck_assert_uint_le(many, 2 * 2 * 2 * 4 + 2 * 3 * 5);
	for (int i = 0; i < LAYER; i++)
		t[i].target = NULL;
	free_layer(t);
}
END_TEST

/* ---- sums ---- */

#define SUM_RANKS 6
#define SUM_TERMS 5
#define SUM_BOXES 64

/* A sum whose terms, with copies, and targets are anywhere */
struct random_sum {
	dicomm_tensor_t t;
	dicomm_box_t source[SUM_BOXES], target[SUM_BOXES];
	double weights[SUM_TERMS];
	int64_t end[2][SUM_RANKS]; /* elements of a rank so far */
	int ranks;
	unsigned state;
};

static int roll(struct random_sum *s, int below)
{
	return (int)storm_random(&s->state, (unsigned)below);
}

static void add_interval(struct random_sum *s, bool target, int rank, int term,
			 int64_t lo, int64_t hi)
{
	dicomm_box_t *b = target ? &s->target[s->t.targets++]
				 : &s->source[s->t.sources++];

	*b = (dicomm_box_t){.rank = rank, .term = term};
	b->lo[0] = lo;
	b->hi[0] = hi;
	b->offset = s->end[target][rank];
	s->end[target][rank] += hi - lo;
}

static void draw_sum(struct random_sum *s, unsigned seed)
{
	*s = (struct random_sum){.state = seed * 7919 + 1};
	s->t = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
	s->ranks = 2 + roll(s, SUM_RANKS - 1);
	s->t.type = DICOMM_FLOAT32;
	s->t.axes = 1;
	s->t.shape[0] = roll(s, 2) ? 1500 + roll(s, 2000) : 3 + roll(s, 50);
	s->t.terms = 1 + roll(s, SUM_TERMS);
	s->t.source = s->source;
	s->t.target = s->target;
	s->weights[0] = 0.5;
	for (int i = 1; i < s->t.terms; i++)
		s->weights[i] = 1;
	if (s->t.terms == 1 || !roll(s, 3))
		s->t.weights = s->weights;
	for (int t = 0; t < s->t.terms; t++) {
		int64_t cut = roll(s, (int)s->t.shape[0]);

		/* Mostly where many others are */
		for (int side = 0; side < 2; side++)
			for (int copies = 1 + !roll(s, 3); copies; copies--)
				add_interval(s, false,
					     roll(s, 2) ? 0 : roll(s, s->ranks),
					     t, side ? cut : 0,
					     side ? s->t.shape[0] : cut);
	}
	for (int r = 0, n = 1 + roll(s, s->ranks); r < n; r++)
		add_interval(s, true, (int)(seed + (unsigned)r) % s->ranks, 0,
			     roll(s, 4) ? 0 : roll(s, (int)s->t.shape[0]),
			     s->t.shape[0]);
}

/* Bit r: rank r has this element. */
static unsigned ranks_with(const dicomm_box_t *boxes, size_t n, int term,
			   int64_t at)
{
	unsigned ranks = 0;

	for (size_t i = 0; i < n; i++)
		if (boxes[i].term == term && boxes[i].lo[0] <= at &&
		    at < boxes[i].hi[0])
			ranks |= 1u << boxes[i].rank;
	return ranks;
}

/* The fewest elements that have to move for one element of the sum: some ranks,
 * any of all, make it. Each gets the terms that it has not; and each other rank
 * that wants the sum gets that. */
static int least_moves(const struct random_sum *s, int64_t at)
{
	unsigned wants = ranks_with(s->target, s->t.targets, 0, at);
	unsigned has[SUM_TERMS];
	int least = wants ? INT_MAX : 0;

	for (int t = 0; t < s->t.terms; t++)
		has[t] = ranks_with(s->source, s->t.sources, t, at);
	for (unsigned make = 1; wants && make < 1u << s->ranks; make++) {
		int moves = __builtin_popcount(wants & ~make);

		for (int t = 0; t < s->t.terms; t++)
			moves += __builtin_popcount(make & ~has[t]);
		if (moves < least)
			least = moves;
	}
	return least;
}

/* Each rank on a host of its own */
static struct links *hosts_alike(int ranks)
{
	struct links *l = links_create((uint32_t)ranks, (uint32_t)ranks, 1, 1);

	ck_assert_ptr_nonnull(l);
	l->class[0].nic.up = l->class[0].nic.down = 1000000000;
	for (uint32_t r = 0; r < l->ranks; r++)
		l->node_of[r] = r;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

/* Bar: 1.05 times the fewest bytes on average, 1.25 times at most, over 1,000
 * sums, whether on one host or on hosts that are alike. */
START_TEST(sums_are_made_where_the_terms_are)
{
	double all = 0, worst = 0;
	int sums = 0;

	for (unsigned seed = 0; seed < 1000; seed++) {
		struct random_sum s;
		struct redist_request r = {.tensors = &s.t,
					   .n = 1,
					   .params = params,
					   .unwanted = true,
					   .staging = seed % 3 ? 0 : 8192,
					   .way = (dicomm_way_t)_i};
		struct links *hosts;
		uint64_t least = 0, bytes;
		double times;
		char what[60];

		draw_sum(&s, seed);
		r.ranks = s.ranks;
		hosts = hosts_alike(s.ranks);
		r.links = seed % 2 ? hosts : NULL;
		snprintf(what, sizeof(what), "sum %u, way %d", seed, _i);
		for (int64_t at = 0; at < s.t.shape[0]; at++)
			least += 4 * (uint64_t)least_moves(&s, at);
		bytes = redist_run(&r, what).bytes;
		links_free(hosts);
		ck_assert_msg(bytes >= least && (bytes == 0) == (least == 0),
			      "%s: %zu bytes, %zu at least", what,
			      (size_t)bytes, (size_t)least);
		if (!least)
			continue;
		times = (double)bytes / (double)least;
		ck_assert_msg(times <= 1.25, "%s: %zu bytes, %zu at least",
			      what, (size_t)bytes, (size_t)least);
		worst = times > worst ? times : worst;
		all += times;
		sums++;
	}
	printf("%d sums, way %d: %.3f times the fewest bytes, %.3f at most\n",
	       sums, _i, all / sums, worst);
	ck_assert_int_gt(sums, 700);
	ck_assert_double_le(all / sums, 1.05);
}
END_TEST

/* ---- links ---- */

/* Each rank on a host of its own; or `wide`: all that hold the tensor on one
 * host, all that want it on another one, with a NIC for each rank. Or with
 * `middle`, that rate between two islands. */
struct network {
	int ranks; /* that hold it; as many want it */
	bool wide;
	uint64_t middle;
};

#define NIC 25000000 /* bytes per second */

static struct links *make_links(const struct network *net)
{
	uint32_t ranks = 2 * (uint32_t)net->ranks;
	struct links *l = links_create(ranks, net->wide ? 2 : ranks, 1,
				       net->middle ? 2 : 1);

	ck_assert_ptr_nonnull(l);
	l->class[0].nic.up = l->class[0].nic.down =
		net->wide ? NIC * (uint64_t)net->ranks : NIC;
	l->class[0].rank = NIC;
	l->class[0].inside = 10000000000;
	l->class[0].latency_ps = 20000000;
	for (uint32_t r = 0; r < ranks; r++) {
		uint32_t side = r >= ranks / 2;

		l->node_of[r] = net->wide ? side : r;
		if (net->middle)
			l->island_of[r] = side;
	}
	for (uint32_t i = 0; i < l->islands && net->middle; i++)
		l->island[i].up = l->island[i].down = net->middle;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

/* 42 MB that all of one group have, and all of the other one want: seconds of
 * each way. Returns the one that is chosen. */
static dicomm_way_t cross(const struct network *net, double seconds[WAYS])
{
	struct links *links = make_links(net);
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	struct redist_request r = {.tensors = &t,
				   .n = 1,
				   .links = links,
				   .params = params,
				   .ranks = 2 * net->ranks};
	struct redist_plan *plan;
	dicomm_way_t way;
	int ranks[16];

	r.params.node_ranks = r.params.node_cores = 8;
	for (int i = 0; i < r.ranks; i++)
		ranks[i] = i;
	t.type = DICOMM_BFLOAT16;
	t.axes = 2;
	t.shape[0] = 4096;
	t.shape[1] = 5120;
	t.sources = t.targets = (size_t)net->ranks;
	t.source = shard(ranks, net->ranks, 1, &t, -1);
	t.target = shard(ranks + net->ranks, net->ranks, 1, &t, -1);
	ck_assert_int_eq(redist_plan_make(&r, &plan), DICOMM_SUCCESS);
	for (int w = 1; w < WAYS; w++)
		seconds[w] = (double)plan->cost[w].ps / 1e12;
	way = plan->way;
	redist_plan_free(plan);
	free((void *)(uintptr_t)t.source);
	free((void *)(uintptr_t)t.target);
	links_free(links);
	return way;
}

static void near(double got, double want, const char *what)
{
	ck_assert_msg(got > 0.95 * want && got < 1.1 * want, "%s: %g s, not %g",
		      what, got, want);
}

/* Bar: 3 times as fast as the leader for 4 ranks, 5.5 times for 8. */
START_TEST(a_boundary_is_crossed_over_all_links)
{
	struct network net = {.ranks = _i % 2 ? 8 : 4, .wide = _i / 2};
	double s[WAYS], once = 4096.0 * 5120 * 2 / NIC, n = net.ranks;
	dicomm_way_t way = cross(&net, s);

	printf("%d to %d ranks, %s: direct %.3f s, scatter %.3f, leader %.3f\n",
	       net.ranks, net.ranks, net.wide ? "2 hosts" : "each a host",
	       s[DICOMM_WAY_DIRECT], s[DICOMM_WAY_SCATTER],
	       s[DICOMM_WAY_LEADER]);
	ck_assert_double_ge(s[DICOMM_WAY_LEADER] / s[way],
			    net.ranks == 8 ? 5.5 : 3);
	near(s[DICOMM_WAY_DIRECT], once, "direct");
	if (net.wide) {
		ck_assert_int_eq(way, DICOMM_WAY_SCATTER);
		near(s[DICOMM_WAY_SCATTER], once / n, "scatter");
		near(s[DICOMM_WAY_LEADER], once, "leader");
	} else {
		near(s[DICOMM_WAY_SCATTER], once, "scatter");
	}
}
END_TEST

/* A tensor that takes several rounds: no link is idle in the first one. */
START_TEST(all_links_are_used_from_the_first_round_on)
{
	static const int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	struct redist_request r = {.tensors = &t,
				   .n = 1,
				   .params = params,
				   .way = DICOMM_WAY_SCATTER,
				   .ranks = 8};
	struct redist_plan *plan;

	t.type = DICOMM_FLOAT32;
	t.axes = 1;
	t.shape[0] = 4 * (REDIST_STAGING / 4);
	t.sources = t.targets = 4;
	t.source = shard(ranks, 4, 1, &t, -1);
	t.target = shard(ranks + 4, 4, 1, &t, -1);
	for (r.rank = 0; r.rank < r.ranks; r.rank++) {
		ck_assert_int_eq(redist_plan_make(&r, &plan), DICOMM_SUCCESS);
		ck_assert_uint_gt(plan->nrounds, 2);
		ck_assert_msg(plan->rounds[0].number == 0,
			      "rank %d begins with round %u", r.rank,
			      plan->rounds[0].number);
		redist_plan_free(plan);
	}
	free((void *)(uintptr_t)t.source);
	free((void *)(uintptr_t)t.target);
}
END_TEST

/* A way between islands carries one copy, or one for each that wants it. */
START_TEST(a_narrow_way_between_islands_is_crossed_once)
{
	struct network net = {.ranks = 4, .middle = NIC / 4};
	double s[WAYS], once = 4096.0 * 5120 * 2 / (NIC / 4);

	ck_assert_int_eq(cross(&net, s), DICOMM_WAY_SCATTER);
	near(s[DICOMM_WAY_DIRECT], 4 * once, "direct");
	near(s[DICOMM_WAY_SCATTER], once + once / 4 * 3 / 4, "scatter");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("redistribute");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, random_layouts_are_as_defined, 0, SIZES);
	tcase_add_test(t, a_large_plan_is_made_in_time_and_memory);
	tcase_add_test(t, messages_are_as_many_as_pairs_of_ranks);
	tcase_add_loop_test(t, sums_are_made_where_the_terms_are, 0, WAYS);
	tcase_add_loop_test(t, a_boundary_is_crossed_over_all_links, 0, 4);
	tcase_add_test(t, all_links_are_used_from_the_first_round_on);
	tcase_add_test(t, a_narrow_way_between_islands_is_crossed_once);
	suite_add_tcase(s, t);
	return runner_main(s);
}
