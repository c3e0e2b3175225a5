/* SPDX-License-Identifier: BSD-3-Clause */
/* Splits layers over the stages of a pipeline. */
#include "planner/search/layers.h"

#include <math.h>

#define BISECTIONS 40

static double passes(const struct layers_stage *s, int first, int end,
		     bool recompute)
{
	const struct table *t = s->table;
	double forward = t->forward[end] - t->forward[first];
	double route = s->route * (t->mixed[end] - t->mixed[first]);

	return (forward + route) * (recompute ? 2 : 1) + t->backward[end] -
	       t->backward[first] + route;
}

static bool fits(const struct layers_stage *s, int first, int end,
		 bool recompute)
{
	const struct table *t = s->table;
	double bytes, experts, kept, active;

	if (end == first)
		return true;
	experts = table_experts(t, first, end - 1);
	bytes = s->state * (table_params(t, first, end - 1) - experts) +
		s->expert_state * experts +
		table_work(t, first, end - 1, recompute && !s->again);
	kept = t->kept[end] - t->kept[first];
	active = t->active[end] - t->active[first];
	if (recompute)
		bytes += s->in_flight * kept + s->again * (active - kept);
	else
		bytes += s->in_flight * active;
	return bytes <= s->memory;
}

/* The most units from `first` on, up to `most`, within a time. */
static int reach(struct layers_stage *s, int first, int most, double seconds,
		 bool recompute)
{
	int low = first, high = most; /* all up to low are possible */

	while (low < high) {
		int end = low + (high - low + 1) / 2;

		bool soon =
			passes(s, first, end, recompute) + s->extra <= seconds;
		bool good = soon && fits(s, first, end, recompute);

		s->tight |= soon && !good;
		if (good)
			low = end;
		else
			high = end - 1;
	}
	return low;
}

/* Can all units be done with no stage longer than that? */
static bool fill(struct layers_stage *s, int stages, int units, double seconds)
{
	int first = 0;

	for (int i = 0; i < stages; i++) {
		int most = units - (stages - 1 - i), end, again;

		s[i].tight = false;
		end = reach(&s[i], first, most, seconds, false);
		again = end < most ? reach(&s[i], first, most, seconds, true)
				   : end;
		s[i].recompute = again > end;
		if (again > end)
			end = again;
		if (end == first)
			return false;
		s[i].first = first;
		s[i].last = end - 1;
		first = end;
	}
	return first == units;
}

double layers_seconds(const struct layers_stage *s)
{
	return passes(s, s->first, s->last + 1, s->recompute) + s->extra;
}

double layers_split(struct layers_stage *s, int stages, int units, double slack,
		    double limit)
{
	double low = 0, high = 0, speed = 0;

	if (stages > units || (limit > 0 && !fill(s, stages, units, limit)))
		return INFINITY;
	for (int i = 0; i < stages; i++) {
		speed += 1 / passes(&s[i], 0, units, false);
		high = fmax(high, passes(&s[i], 0, units, true) + s[i].extra);
	}
	/* Not faster than all of them together; as a rule, not much slower.
	 * Never 0, whatever the times are: it is to grow. */
	low = fmax(1 / speed, high * 1e-12);
	for (double most = 1.2 * low; most < high; most *= 1.5) {
		if (fill(s, stages, units, most)) {
			high = most;
			break;
		}
		low = most;
	}
	if (!fill(s, stages, units, high))
		return INFINITY;
	for (int i = 0; i < BISECTIONS && high - low > 1e-4 * high; i++) {
		double middle = (low + high) / 2;

		if (fill(s, stages, units, middle))
			high = middle;
		else
			low = middle;
	}
	fill(s, stages, units, high);
	/* A looser bound may not fit: greed is right for each bound alone. */
	if (slack > 1 && !fill(s, stages, units, high * slack))
		fill(s, stages, units, high);
	return high;
}

double layers_by_memory(struct layers_stage *s, int stages, int units,
			const double *memory)
{
	double sum = 0, before = 0, most = 0;
	int first = 0;

	if (stages > units)
		return INFINITY;
	for (int i = 0; i < stages; i++)
		sum += memory[i];
	for (int i = 0; i < stages; i++) {
		int end;

		before += memory[i];
		end = (int)floor(units * before / sum + 0.5);
		if (end <= first)
			end = first + 1;
		if (end > units - (stages - 1 - i))
			end = units - (stages - 1 - i);
		s[i].first = first;
		s[i].last = end - 1;
		s[i].recompute = !fits(&s[i], first, end, false);
		s[i].tight = s[i].recompute;
		if (s[i].recompute && !fits(&s[i], first, end, true))
			return INFINITY;
		most = fmax(most, layers_seconds(&s[i]));
		first = end;
	}
	return most;
}
