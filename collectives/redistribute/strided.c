/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of boxes with strides. */
#include "collectives/redistribute/strided.h"

#include <string.h>

#include "collectives/redistribute/boxes.h"

static int64_t place(const dicomm_box_t *box, int axes, const int64_t *lo,
		     const int64_t *hi, int64_t *stride)
{
	dicomm_box_t dense = {.rank = 0};
	int64_t first;

	if (!box) {
		for (int a = 0; a < axes; a++)
			dense.hi[a] = hi[a] - lo[a];
		boxes_strides(&dense, axes, stride);
		return 0;
	}
	boxes_strides(box, axes, stride);
	first = box->offset;
	for (int a = 0; a < axes; a++)
		first += (lo[a] - box->lo[a]) * stride[a];
	return first;
}

void strided_make(struct strided *s, int axes, const int64_t *lo,
		  const int64_t *hi, const dicomm_box_t *from,
		  const dicomm_box_t *to)
{
	int64_t fs[DICOMM_AXES], ts[DICOMM_AXES];
	struct strided_axis axis[DICOMM_AXES];
	int n = 0;

	*s = (struct strided){.n = boxes_elements(lo, hi, axes)};
	s->from = place(from, axes, lo, hi, fs);
	s->to = place(to, axes, lo, hi, ts);
	/* Go from the innermost axis outwards. If an axis continues, in both
	 * places, where the axis inside it ends, join the two. */
	for (int a = axes - 1; a >= 0; a--) {
		int64_t len = hi[a] - lo[a];

		if (len == 1)
			continue;
		if (n && fs[a] == axis[n - 1].n * axis[n - 1].from &&
		    ts[a] == axis[n - 1].n * axis[n - 1].to)
			axis[n - 1].n *= len;
		else
			axis[n++] = (struct strided_axis){len, fs[a], ts[a]};
	}
	s->naxes = n;
	for (int i = 0; i < n; i++)
		s->axis[i] = axis[n - 1 - i];
}

static bool has_run(const struct strided *s)
{
	return s->naxes && s->axis[s->naxes - 1].from == 1 &&
	       s->axis[s->naxes - 1].to == 1;
}

bool strided_is_run(const struct strided *s)
{
	return !s->naxes || (s->naxes == 1 && has_run(s));
}

dicomm_result_t strided_runs(const struct strided *s, strided_fn *fn, void *ctx)
{
	int outer = s->naxes - has_run(s);
	uint64_t run = has_run(s) ? (uint64_t)s->axis[outer].n : 1;
	int64_t at[DICOMM_AXES] = {0}, from = s->from, to = s->to;

	for (;;) {
		dicomm_result_t status = fn(ctx, from, to, run);
		int a = outer - 1;

		if (status != DICOMM_SUCCESS)
			return status;
		while (a >= 0 && ++at[a] == s->axis[a].n) {
			from -= (s->axis[a].n - 1) * s->axis[a].from;
			to -= (s->axis[a].n - 1) * s->axis[a].to;
			at[a--] = 0;
		}
		if (a < 0)
			return DICOMM_SUCCESS;
		from += s->axis[a].from;
		to += s->axis[a].to;
	}
}

struct copying {
	const char *from;
	char *to;
	size_t elem;
};

static dicomm_result_t copy_run(void *ctx, int64_t from, int64_t to, uint64_t n)
{
	const struct copying *c = ctx;

	memcpy(c->to + (size_t)to * c->elem, c->from + (size_t)from * c->elem,
	       n * c->elem);
	return DICOMM_SUCCESS;
}

void strided_copy(const struct strided *s, size_t elem, const void *from,
		  void *to)
{
	struct copying c = {from, to, elem};

	strided_runs(s, copy_run, &c);
}
