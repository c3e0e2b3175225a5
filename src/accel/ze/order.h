/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In-order streams, events and host functions for Level Zero, which has none of
 * them.
 *
 * Command lists of Level Zero run in no order unless a barrier says so, an
 * event happens once, and nothing in the driver calls the host. So this file
 * - appends a barrier after everything on a list, which makes it a stream;
 * - makes a mark, which can be set again and again, of many events;
 * - has a thread that watches streams with queued host functions. It calls a
 *   function when the stream has reached it, while the stream waits for another
 *   event.
 *
 * Events and lists are reused and never destroyed. An event is reused only
 * after it was signaled and everything that waited for it has passed it.
 *
 * Functions return a ze_result. Threads: any.
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

/* Functions of the loader. Valid once ze.c has opened it. */
extern struct ze_functions ze;

/* What ze.c finds out about a device. ze_places[] is indexed by the
 * device's index. */
struct ze_place {
	ze_driver driver;
	ze_context context;
	ze_device device;
	uint32_t ordinal; /* queue group with compute queues */
	uint32_t queues;  /* number of queues in that group */
	uint32_t
		ours; /* the number of the queue that the library's lists use */
};
extern struct ze_place ze_places[ZE_DEVICES];

struct ze_list;
struct ze_mark;

enum ze_apart {
	ZE_APART,
	ZE_TOGETHER,
	ZE_BUSY, /* unknown: the list does not advance even without a hold */
};
/* Find out whether a list of the library, on that queue and with that priority,
 * advances while a list with the users' priority waits for the host. Takes up
 * to a few seconds if it does not advance. */
int ze_list_probe(int index, uint32_t queue, uint32_t priority,
		  enum ze_apart *found);

/* Get a list of the library. */
int ze_list_new(int index, uint32_t priority, struct ze_list **list);
/* Get the user's list, which the user keeps until ze_list_close(). If native is
 * NULL, get the device's default list, which all such callers share. */
int ze_list_of(int index, void *native, struct ze_list **list);
/* Fails if the loader cannot tell. */
int ze_list_is_immediate(const struct ze_list *list, uint8_t *immediate);
/* Work that is on the list still runs. */
void ze_list_close(struct ze_list *list);
int ze_list_copy(struct ze_list *list, void *dst, const void *src,
		 size_t bytes);
/* Launch a kernel of `blocks` groups. Each argument has 64 bits; NULL
 * ends them. */
int ze_list_launch(struct ze_list *list, ze_kernel kernel, uint32_t blocks,
		   void *const *args);
/* Queue a call of fn(arg), by a thread of the library. */
int ze_list_call(struct ze_list *list, void (*fn)(void *arg), void *arg);

int ze_mark_create(struct ze_mark **mark);
int ze_mark_destroy(struct ze_mark *mark);
int ze_mark_set(struct ze_mark *mark, struct ze_list *list);
/* Returns ZE_NOT_READY if the list has not reached the mark, and ZE_SUCCESS if
 * the mark was never set. */
int ze_mark_query(struct ze_mark *mark);
int ze_mark_wait(struct ze_list *list, struct ze_mark *mark);

/* A queue of holds. Each holds one list until the host ends it; ze_hold_end()
 * ends the oldest. */
struct ze_holds {
	struct ze_hold *first, **last;
};
int ze_hold_add(struct ze_holds *holds, struct ze_list *list);
/* Returns false if there is no hold. */
bool ze_hold_end(struct ze_holds *holds);

#endif
