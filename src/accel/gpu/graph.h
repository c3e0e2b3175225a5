/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stops in graphs: the operations of accel.h with these names.
 *
 * A stop is one node of a graph, with a word of pinned host memory. The node
 * sets the word to 0 and waits until it is 1 again. The host looks at the word,
 * and sets it to 1. Replays of a graph do not overlap, so the two states are
 * enough. Where the device cannot do that by itself, the node is a host
 * function, which holds up the driver's other host functions meanwhile.
 *
 * An object of the user, which the graph and everything that is made of it
 * hold, tells when the last of these is gone. Words are reused and never freed.
 */
#ifndef DICOMM_ACCEL_GPU_GRAPH_H
#define DICOMM_ACCEL_GPU_GRAPH_H

#include "src/accel/gpu/driver.h"

dicomm_result_t gpu_graph_captured(struct gpu_driver *gpu, int index,
				   void *native, uint64_t *capture);
dicomm_result_t gpu_graph_stop_add(struct gpu_driver *gpu, int index,
				   void *native, struct accel_order *order,
				   void (*gone)(void *ctx), void *ctx,
				   struct accel_stop **out);
dicomm_result_t gpu_graph_follow(struct gpu_driver *gpu, int index, void *to,
				 void *from, bool only);
void gpu_graph_stop_free(struct accel_stop *stop);
bool gpu_graph_stop_reached(const struct accel_stop *stop);
void gpu_graph_stop_release(struct accel_stop *stop);
/* As held() of accel.h */
bool gpu_graph_held(struct gpu_driver *gpu);

#endif
