/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measured times and sizes of the units of a model.
 *
 *   {"sequence": 2048,
 *    "devices": {"A100": {"2": {"8": {"0": [f, b, u], "1-24": [f, b, u], ...
 *    "layers": {"8": {"0": {"params_floats": n, "act_mem_bytes": n,
 *                           "act_input_bytes": n}, ...
 *    "messages": {"side_s": s, "buffer_bytes": n}, "work": x}
 *
 * devices: [type][micro-batch][tensor-parallel degree][unit, or units of it] =
 * seconds of forward, backward and update of one micro-batch. layers, which may
 * be missing: of one sequence, by tensor-parallel degree. These are the tables
 * of Sailor (eth-easl/sailor, profiles and llm_info.json). messages, of which
 * each value may be missing: what a message that holds its sides costs each of
 * them (PROFILE_SIDE_S), and room that a rank has for what it sends
 * (PROFILE_BUFFER_BYTES). work: what the backward pass of a layer has in memory
 * beside act_mem_bytes, as a multiple of that (PROFILE_WORK). Read only: any
 * thread.
 */
#ifndef DICOMM_PLANNER_INPUT_PROFILE_H
#define DICOMM_PLANNER_INPUT_PROFILE_H

#include "planner/input/fleet.h"
#include "planner/input/model.h"

/*
 * Where nobody says. Side: a runtime whose host waits for the device at each
 * message, as that of DeepSpeed for the sizes of what comes, so that passes do
 * not queue up. Buffer: NCCL has eight steps of 128 KiB for a message to
 * another node (NCCL_P2P_NET_CHUNKSIZE). Work: gradients, and temporaries of as
 * much. The first and the last are of measured runs, docs/planner.md says which
 * ones, and what they are worth on others.
 */
#define PROFILE_SIDE_S 1.6e-3
#define PROFILE_BUFFER_BYTES 1048576.0
#define PROFILE_WORK 2.0

struct profile_row {
	int type, tp, micro_batch;
	double (*seconds)[3]; /* [units]; forward, backward, update */
};

struct profile_size {
	int tp;
	double (*of)[3]; /* [units]; parameters, activation and input bytes */
};

struct profile {
	struct profile_row *row; /* [rows], by type, tp, micro-batch */
	struct profile_size *size;
	int rows, sizes, units;
	double side_s, buffer; /* of messages */
	double work;
};

/* Nothing was measured: what is assumed. */
static inline struct profile profile_none(void)
{
	return (struct profile){.side_s = PROFILE_SIDE_S,
				.buffer = PROFILE_BUFFER_BYTES,
				.work = PROFILE_WORK};
}

bool profile_open(struct profile *p, const char *file, const struct fleet *f,
		  const struct model *m, int seq);
void profile_close(struct profile *p);

/*
 * Seconds of a unit, between two measured batch sizes where this one was not.
 * False, and why in words, where that would be a guess beyond what was
 * measured.
 */
bool profile_seconds(const struct profile *p, const struct fleet *f, int type,
		     int tp, int micro_batch, int unit, double out[3],
		     char *why, size_t len);
/* NULL: no sizes of that degree. */
const struct profile_size *profile_size(const struct profile *p, int tp);

#endif
