/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What runs when on devices of Level Zero.
 *
 * Its command lists have no order but what barriers make, its events happen
 * once, and nothing in it calls the host. Hence a barrier follows all that is
 * appended to a list here, so that it is a stream; a mark is in turn each of
 * many events; and a thread of ours looks for the places of streams at which it
 * has to call a function, while the stream waits for another event.
 *
 * Events and lists are used again and never destroyed: of an event, only once
 * it has happened and all that waited for it has gone on.
 *
 * Any thread. Functions return a ze_result.
 */
#ifndef DICOMM_ACCEL_ZE_ORDER_H
#define DICOMM_ACCEL_ZE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/accel/ze/api.h"

#define ZE_DEVICES 64

struct ze_functions {
#define F(name, symbol, parameters) ze_result(*name) parameters;
	ZE_FUNCTIONS(F)
	ZE_MORE_FUNCTIONS(F)
#undef F
};

/* The loader's, once it is open */
extern struct ze_functions ze;

/* What ze.c finds, in the order of the indices of devices */
struct ze_place {
	ze_driver driver;
	ze_context context;
	ze_device device;
	uint32_t ordinal; /* of the queues that compute */
	uint32_t queues;  /* how many of them there are */
	uint32_t ours;    /* of these, for lists of ours */
};
extern struct ze_place ze_places[ZE_DEVICES];

struct ze_list;
struct ze_mark;

enum ze_apart {
	ZE_APART,
	ZE_TOGETHER,
	ZE_BUSY, /* nothing of the device runs: it cannot be told */
};
/* Does a list of ours go on, on that queue and with that priority, while one
 * with the priority of users waits for the host? Waits a few seconds, if not.
 */
int ze_list_probe(int index, uint32_t queue, uint32_t priority,
		  enum ze_apart *found);

/* One of our own */
int ze_list_new(int index, uint32_t priority, struct ze_list **list);
/* One of the user, who keeps it until ze_list_close(); NULL: one of ours that
 * all share who ask so */
int ze_list_of(int index, void *native, struct ze_list **list);
/* An error where that cannot be told */
int ze_list_is_immediate(const struct ze_list *list, uint8_t *immediate);
/* What was appended still runs. */
void ze_list_close(struct ze_list *list);
int ze_list_copy(struct ze_list *list, void *dst, const void *src,
		 size_t bytes);
/* Of `blocks` groups; each argument is of 64 bits, NULL ends them. */
int ze_list_launch(struct ze_list *list, ze_kernel kernel, uint32_t blocks,
		   void *const *args);
/* fn(arg) in a thread of the library, in its turn */
int ze_list_call(struct ze_list *list, void (*fn)(void *arg), void *arg);

int ze_mark_create(struct ze_mark **mark);
int ze_mark_destroy(struct ze_mark *mark);
int ze_mark_set(struct ze_mark *mark, struct ze_list *list);
/* ZE_NOT_READY: it has not been reached. Never set: ZE_SUCCESS */
int ze_mark_query(struct ze_mark *mark);
int ze_mark_wait(struct ze_list *list, struct ze_mark *mark);

/* What holds lists until the host lets go: the oldest hold first. */
struct ze_holds {
	struct ze_hold *first, **last;
};
int ze_hold_add(struct ze_holds *holds, struct ze_list *list);
/* False: there is none. */
bool ze_hold_end(struct ze_holds *holds);

#endif
