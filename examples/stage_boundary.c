/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The boundary between two pipeline stages of unlike tensor parallelism: ranks
 * 0 to 3 are the first stage, ranks 4 and 5 the second one.
 *
 * Every rank of the first stage has the whole activation, and both of the
 * second one need it. The leader of a stage would send it over one link. Here
 * each rank of the second stage gets a half, from another rank, and the two
 * exchange them.
 *
 *     cc -o boundary stage_boundary.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 6 ./boundary
 */
#include <stdio.h>
#include <stdlib.h>

#include <dicomm.h>

#define TOKENS 512
#define HIDDEN 256
#define BATCHES 4

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, comm)

/* From four ranks that have all of it to two that want all of it */
static dicomm_redistribute_t plan_boundary(dicomm_comm_t comm)
{
	static const int first[] = {0, 1, 2, 3}, second[] = {4, 5};
	dicomm_redistribute_config_t config =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	dicomm_tensor_t activation = DICOMM_TENSOR_INITIALIZER;
	dicomm_mesh_t mesh = {0};
	dicomm_box_t source[4], target[2];
	dicomm_redistribute_t plan = NULL;

	activation.name = "activation";
	activation.type = DICOMM_FLOAT32;
	activation.axes = 2;
	activation.shape[0] = TOKENS;
	activation.shape[1] = HIDDEN;
	mesh.dims = 1;
	mesh.placements[0].kind = DICOMM_REPLICATE;
	mesh.extent[0] = 4;
	mesh.ranks = first;
	CHECK(dicomm_mesh_boxes(&mesh, 2, activation.shape, 0, source));
	mesh.extent[0] = 2;
	mesh.ranks = second;
	CHECK(dicomm_mesh_boxes(&mesh, 2, activation.shape, 0, target));
	activation.source = source;
	activation.sources = 4;
	activation.target = target;
	activation.targets = 2;
	/* DICOMM_WAY_AUTO takes what is fastest on the links that are there. */
	config.way = DICOMM_WAY_SCATTER;
	CHECK(dicomm_redistribute_plan(&plan, &activation, 1, &config, comm));
	return plan;
}

int main(void)
{
	static float batch[TOKENS * HIDDEN];
	const void *source = batch;
	void *target = batch;
	dicomm_redistribute_info_t info = {0};
	dicomm_redistribute_t plan;
	dicomm_comm_t comm = NULL;
	int rank, ranks, wrong = 0;

	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	if (ranks != 6) {
		fprintf(stderr, "6 ranks are needed, not %d\n", ranks);
		return 1;
	}
	plan = plan_boundary(comm);
	for (int b = 0; b < BATCHES; b++) {
		for (int i = 0; i < TOKENS * HIDDEN; i++)
			batch[i] = rank < 4 ? (float)(b * 1000 + i) : 0;
		CHECK(dicomm_redistribute_run(plan, &source, &target, NULL));
		for (int i = 0; i < TOKENS * HIDDEN; i++)
			wrong += batch[i] != (float)(b * 1000 + i);
	}
	info.size = sizeof(info);
	CHECK(dicomm_redistribute_info(plan, &info));
	printf("rank %d: %d batches of %d bytes, sent %d each, %d wrong\n",
	       rank, BATCHES, (int)sizeof(batch), (int)info.bytes_sent, wrong);
	CHECK(dicomm_redistribute_free(plan));
	CHECK(dicomm_comm_destroy(comm));
	return wrong != 0;
}
