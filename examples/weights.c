/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * New weights for an inference engine: ranks 0 to 3 train a model, each with a
 * quarter of every matrix; ranks 4 and 5 serve it, with halves along the other
 * axis.
 *
 * All matrices are in one plan, so that their pieces travel together. Each rank
 * tells only where its own part is; the plan is made once, for all updates.
 *
 *     cc -o weights weights.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 6 ./weights
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define LAYERS 20
#define ROWS 64
#define COLUMNS 48
#define UPDATES 3
#define PART (ROWS * COLUMNS / 2) /* floats of a matrix on a rank, at most */

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, comm)

/* The box of this rank: the trainer shards rows, the engine columns. */
static dicomm_box_t own_box(int rank, const int64_t *shape, dicomm_comm_t comm)
{
	static const int trainer[] = {0, 1, 2, 3}, engine[] = {4, 5};
	dicomm_box_t boxes[4];
	dicomm_mesh_t mesh = {0};

	mesh.dims = 1;
	mesh.extent[0] = rank < 4 ? 4 : 2;
	mesh.ranks = rank < 4 ? trainer : engine;
	mesh.placements[0].kind = DICOMM_SHARD;
	mesh.placements[0].axis = rank < 4 ? 0 : 1;
	CHECK(dicomm_mesh_boxes(&mesh, 2, shape, 0, boxes));
	return boxes[rank < 4 ? rank : rank - 4];
}

static float weight(int update, int layer, int64_t row, int64_t column)
{
	return (float)(update * 7 + layer) + (float)(row * COLUMNS + column);
}

int main(void)
{
	static float parts[LAYERS][PART];
	const void *source[LAYERS];
	void *target[LAYERS];
	dicomm_tensor_t model[LAYERS];
	dicomm_redistribute_info_t info = {0};
	dicomm_redistribute_t plan = NULL;
	dicomm_comm_t comm = NULL;
	dicomm_box_t box;
	int rank, ranks, wrong = 0;
	int64_t shape[2] = {ROWS, COLUMNS};

	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	if (ranks != 6) {
		fprintf(stderr, "6 ranks are needed, not %d\n", ranks);
		return 1;
	}
	box = own_box(rank, shape, comm);
	for (int l = 0; l < LAYERS; l++) {
		dicomm_tensor_t matrix = DICOMM_TENSOR_INITIALIZER;

		matrix.type = DICOMM_FLOAT32;
		matrix.axes = 2;
		matrix.shape[0] = ROWS;
		matrix.shape[1] = COLUMNS;
		matrix.source = matrix.target = &box;
		matrix.sources = rank < 4;
		matrix.targets = rank >= 4;
		model[l] = matrix;
		source[l] = target[l] = parts[l];
	}
	CHECK(dicomm_redistribute_plan_own(&plan, model, LAYERS, NULL, comm));
	for (int u = 0; u < UPDATES; u++) {
		for (int l = 0, k = 0; l < LAYERS && rank < 4; l++, k = 0)
			for (int64_t r = box.lo[0]; r < box.hi[0]; r++)
				for (int64_t c = 0; c < COLUMNS; c++)
					parts[l][k++] = weight(u, l, r, c);
		CHECK(dicomm_redistribute_run(plan, source, target, NULL));
		for (int l = 0, k = 0; l < LAYERS && rank >= 4; l++, k = 0)
			for (int64_t r = 0; r < ROWS; r++)
				for (int64_t c = box.lo[1]; c < box.hi[1]; c++)
					wrong += parts[l][k++] !=
						 weight(u, l, r, c);
	}
	info.size = sizeof(info);
	CHECK(dicomm_redistribute_info(plan, &info));
	printf("rank %d: %d updates of %d matrices by %d messages, %d wrong\n",
	       rank, UPDATES, LAYERS,
	       (int)(info.messages_sent + info.messages_received), wrong);
	CHECK(dicomm_redistribute_free(plan));
	CHECK(dicomm_comm_destroy(comm));
	return wrong != 0;
}
