/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptions of redistributions: what is refused, and by which name. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "collectives/redistribute/overlap.h"
#include "src/base/log.h"
#include "tests/plans/redist.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"

static unsigned state;

static int roll(int below)
{
	return (int)storm_random(&state, (unsigned)below);
}

/* ---- meshes ---- */

static dicomm_mesh_t mesh;
static int64_t shape[2];
static dicomm_box_t boxes[8];

static void refused_mesh(int first_term, const char *words)
{
	ck_assert_int_eq(dicomm_mesh_boxes(&mesh, 2, shape, first_term, boxes),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_msg(strstr(log_last_error(), words), "%s\ndoes not say\n%s",
		      log_last_error(), words);
}

START_TEST(meshes_are_refused_by_name)
{
	static const int ranks[] = {3, 1, 0, 2}, twice[] = {3, 1, 0, 1},
			 below[] = {3, 1, 0, -2};
	static const int64_t extents[] = {INT64_MAX, INT64_MAX};

#define REFUSED(first_term, words, change)                                     \
	do {                                                                   \
		mesh = (dicomm_mesh_t){                                        \
			.dims = 2, .extent = {2, 2}, .ranks = ranks};          \
		shape[0] = shape[1] = 8;                                       \
		ck_assert_int_eq(dicomm_mesh_boxes(&mesh, 2, shape, 0, boxes), \
				 DICOMM_SUCCESS);                              \
		change;                                                        \
		refused_mesh(first_term, words);                               \
	} while (0)
	REFUSED(0, "extent 1048576 of mesh dim 1: more than 2147483647 ranks",
		mesh.extent[0] = mesh.extent[1] = 1 << 20);
	REFUSED(0, "extent 2147483647 of mesh dim 1", mesh.extent[1] = INT_MAX);
	REFUSED(0, "extent -1 of mesh dim 0", mesh.extent[0] = -1);
	REFUSED(0, "extent 0 of mesh dim 1", mesh.extent[1] = 0);
	REFUSED(0, "9 dims", mesh.dims = 9);
	REFUSED(0, "-1 dims", mesh.dims = -1);
	REFUSED(0, "ranks 1 and 3 of the mesh are both 1", mesh.ranks = twice);
	REFUSED(0, "rank 3 of the mesh is -2", mesh.ranks = below);
	REFUSED(0, "ranks of the mesh is NULL", mesh.ranks = NULL);
	REFUSED(-1, "first_term -1", (void)0);
	REFUSED(1 << 20, "first_term 1048576", (void)0);
	REFUSED((1 << 20) - 1, "first_term 1048575, with 2 terms",
		mesh.placements[0].kind = DICOMM_PARTIAL);
	REFUSED(0, "placement 1 is 3", mesh.placements[1].kind = 3);
	REFUSED(0, "placement 0: axis 2",
		(mesh.placements[0].kind = DICOMM_SHARD,
		 mesh.placements[0].axis = 2));
	REFUSED(0, "extent 0 of axis 1 is 9223372036854775807",
		(mesh.placements[0].kind = DICOMM_SHARD,
		 mesh.placements[0].axis = 1,
		 mesh.placements[0].extents = extents));
	REFUSED(0, "shape of axis 1 is -1", shape[1] = -1);
#undef REFUSED
}
END_TEST

START_TEST(parts_of_the_longest_axis_are_right)
{
	static const int ranks[] = {0, 1, 2};
	const int64_t third = INT64_MAX / 3 + 1;

	mesh = (dicomm_mesh_t){.dims = 1, .extent = {3}, .ranks = ranks};
	mesh.placements[0].kind = DICOMM_SHARD;
	shape[0] = INT64_MAX;
	ck_assert_int_eq(dicomm_mesh_boxes(&mesh, 1, shape, 0, boxes),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(boxes[1].lo[0], third);
	ck_assert_int_eq(boxes[2].lo[0], 2 * third);
	ck_assert_int_eq(boxes[2].hi[0], INT64_MAX);
}
END_TEST

/* ---- strides ---- */

#define PLACES 4096

/* Marks the places of a box; returns true if one had a mark. */
static bool mark(const dicomm_box_t *b, int axes, char *places)
{
	int64_t at[DICOMM_AXES], place;
	bool twice = false;

	memcpy(at, b->lo, sizeof(at));
	for (int a = 0; a >= 0;) {
		place = b->offset;
		for (a = 0; a < axes; a++)
			place += (at[a] - b->lo[a]) * b->stride[a];
		twice |= places[place];
		places[place] = 1;
		for (a = axes - 1; a >= 0 && ++at[a] == b->hi[a]; a--)
			at[a] = b->lo[a];
	}
	return twice;
}

static void draw_strides(dicomm_box_t *b, int axes)
{
	*b = (dicomm_box_t){.offset = roll(30)};
	for (int a = 0; a < axes; a++) {
		b->lo[a] = roll(5);
		b->hi[a] = b->lo[a] + 1 + roll(6);
		b->stride[a] = 1 + roll(roll(2) ? 8 : 60);
	}
}

/* Beside marks in a map of memory */
START_TEST(overlaps_are_exactly_those_of_the_places)
{
	int within = 0, between = 0, n = job_is_sanitized() ? 20000 : 100000;
	static char places[PLACES];
	long steps;

	state = 1;
	for (int i = 0; i < n; i++) {
		int axes = 1 + roll(4);
		dicomm_box_t a, b;
		bool twice;

		draw_strides(&a, axes);
		draw_strides(&b, axes);
		steps = OVERLAP_STEPS;
		memset(places, 0, sizeof(places));
		twice = mark(&a, axes, places);
		ck_assert_msg(overlap_within(&a, axes, &steps) ==
				      (twice ? OVERLAP_SOME : OVERLAP_NONE),
			      "box %d: places twice: %d", i, twice);
		within += twice;
		/* Two that are each without an overlap */
		if (twice)
			continue;
		memset(b.stride, 0, sizeof(b.stride));
		memcpy(b.stride, a.stride, sizeof(a.stride));
		memcpy(b.lo, a.lo, sizeof(a.lo));
		memcpy(b.hi, a.hi, sizeof(a.hi));
		b.hi[0] = b.lo[0] + 1 + roll(3);
		if (roll(2))
			b.stride[0] = 1 + roll(60);
		if (overlap_within(&b, axes, &steps) != OVERLAP_NONE)
			continue;
		twice = mark(&b, axes, places);
		ck_assert_msg(overlap_between(&a, &b, axes, &steps) ==
				      (twice ? OVERLAP_SOME : OVERLAP_NONE),
			      "boxes %d: places twice: %d", i, twice);
		between += twice;
	}
	printf("%d boxes: %d overlap themselves, %d another one\n", n, within,
	       between);
	ck_assert_int_gt(within, n / 10);
	ck_assert_int_gt(between, n / 20);
}
END_TEST

/* However large the numbers, an answer comes soon. */
START_TEST(overlaps_of_large_boxes_are_found)
{
	dicomm_box_t b = {.hi = {6, 8}, .stride = {5, 6}};
	long steps = OVERLAP_STEPS;

	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_NONE);
	b.hi[0] = 7;
	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_SOME);
	b = (dicomm_box_t){.hi = {1 << 30, 1 << 30},
			   .stride = {(1 << 30) + 1, 1 << 30}};
	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_NONE);
	b.stride[0]--;
	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_SOME);
	/* 1,000,003 and 999,983 are primes */
	b = (dicomm_box_t){.hi = {999983, 1000003},
			   .stride = {1000003, 999983}};
	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_NONE);
	b.hi[0]++;
	b.hi[1]++;
	ck_assert_int_eq(overlap_within(&b, 2, &steps), OVERLAP_SOME);
}
END_TEST

/* ---- bad descriptions ---- */

static int64_t odd_number(void)
{
	static const int64_t odd[] = {0,
				      1,
				      2,
				      3,
				      -1,
				      7,
				      -8,
				      INT_MAX,
				      INT_MIN,
				      INT64_MAX,
				      INT64_MIN,
				      INT64_MAX / 2,
				      INT64_C(1) << 32,
				      1 << 20,
				      1 << 21,
				      INT64_C(1) << 60};

	return odd[roll((int)(sizeof(odd) / sizeof(*odd)))];
}

/* Sets any field of a box to any number. Returns its name. */
static const char *spoil_box(dicomm_box_t *b)
{
	int axis = roll(2);

	switch (roll(6)) {
	case 0:
		b->rank = (int)odd_number();
		return "rank";
	case 1:
		b->term = (int)odd_number();
		return "term";
	case 2:
		b->lo[axis] = odd_number();
		return "lo";
	case 3:
		b->hi[axis] = odd_number();
		return "hi";
	case 4:
		b->offset = odd_number();
		return "offset";
	default:
		b->stride[axis] = odd_number();
		return "stride";
	}
}

static const char *spoil(dicomm_tensor_t *t, dicomm_box_t *source,
			 dicomm_box_t *target)
{
	static const double weights[] = {1, 0.0 / 0.0, 2};

	switch (roll(10)) {
	case 0:
		t->type = (dicomm_datatype_t)odd_number();
		return "type";
	case 1:
		t->axes = (int)odd_number();
		return "axes";
	case 2:
		t->shape[roll(2)] = odd_number();
		return "shape";
	case 3:
		t->terms = (int)odd_number();
		return "terms";
	case 4:
		t->weights = weights;
		return "weights";
	case 5:
		t->size = (size_t)odd_number();
		return "size";
	case 6:
		t->source = roll(2) ? NULL : source;
		return "source";
	case 7:
		return spoil_box(&target[roll(2)]);
	default:
		return spoil_box(&source[roll(2)]);
	}
}

/* Whatever is wrong, a plan is made, or the text says where it is not. */
START_TEST(any_description_is_taken_or_refused_by_name)
{
	int taken = 0, refused = 0, n = job_is_sanitized() ? 4000 : 20000;
	struct redist_plan *plan;

	state = 7;
	log_catch(true);
	for (int i = 0; i < n; i++) {
		dicomm_box_t source[2], target[2];
		dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
		struct redist_request r = {
			.tensors = &t, .n = 1, .ranks = 2, .unwanted = roll(2)};
		const char *last = "";
		dicomm_result_t status;

		t.type = DICOMM_FLOAT32;
		t.axes = 2;
		t.shape[0] = t.shape[1] = 8;
		t.source = source;
		t.target = target;
		t.sources = t.targets = 2;
		for (int k = 0; k < 2; k++) {
			source[k] = (dicomm_box_t){.rank = k,
						   .lo = {4 * k, 0},
						   .hi = {4 * k + 4, 8}};
			target[k] = source[k];
			target[k].rank = roll(2);
			target[k].offset = 32 * k;
		}
		for (int k = 1 + roll(3); k; k--)
			last = spoil(&t, source, target);
		if (!roll(8))
			r.staging = (uint64_t)odd_number();
		log_set_last_error("");
		status = redist_plan_make(&r, &plan);
		if (status == DICOMM_SUCCESS) {
			redist_plan_free(plan);
			taken++;
			continue;
		}
		refused++;
		ck_assert_msg(
			status == DICOMM_ERR_INVALID_ARGUMENT &&
				(strstr(log_last_error(), "tensor 0") ||
				 strstr(log_last_error(), "staging_bytes")),
			"description %d, last %s: status %d, text \"%s\"", i,
			last, (int)status, log_last_error());
	}
	printf("%d descriptions: %d taken, %d refused\n", n, taken, refused);
	ck_assert_int_gt(taken, n / 20);
	ck_assert_int_gt(refused, n / 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("boxes");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, meshes_are_refused_by_name);
	tcase_add_test(t, parts_of_the_longest_axis_are_right);
	tcase_add_test(t, overlaps_are_exactly_those_of_the_places);
	tcase_add_test(t, overlaps_of_large_boxes_are_found);
	tcase_add_test(t, any_description_is_taken_or_refused_by_name);
	suite_add_tcase(s, t);
	return runner_main(s);
}
