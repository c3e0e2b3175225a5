/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens when, in a step: for a timeline viewer, and as a picture. */
#ifndef DICOMM_PLANNER_OUTPUT_TIMELINE_H
#define DICOMM_PLANNER_OUTPUT_TIMELINE_H

#include "planner/cost/cost.h"

struct timeline {
	struct schedule_event *event; /* [events]; owned */
	size_t events, room;
	bool bad; /* no memory */
};

/* A schedule_tell whose ctx is a struct timeline, all zero at first. */
void timeline_add(const struct schedule_event *e, void *ctx);
void timeline_free(struct timeline *t);

/* False after a message. */
bool timeline_trace(const struct timeline *t, const struct job *j,
		    const struct plan *p, const char *file);
bool timeline_svg(const struct timeline *t, const struct job *j,
		  const struct plan *p, const struct cost *c, const char *file);

#endif
