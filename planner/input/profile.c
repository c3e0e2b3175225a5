/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads profiles, and finds a time between two measured ones. */
#include "planner/input/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"

/* Of one pass of a layer; and the least of both passes of all layers. */
#define SECONDS_MOST 1e6
#define SECONDS_LEAST 1e-9

/* "7" or "1-24" within units; false if it is neither. */
static bool read_units(const char *key, int units, int *first, int *last)
{
	char *end;
	long a = strtol(key, &end, 10), b = a;

	if (end == key)
		return false;
	if (*end == '-')
		b = strtol(end + 1, &end, 10);
	*first = (int)a;
	*last = (int)b;
	return !*end && a >= 0 && a <= b && b < units;
}

static void read_three(struct input *in, const char *at, const json_t *v,
		       double out[3])
{
	for (size_t i = 0; i < 3; i++) {
		const json_t *x = json_array_get(v, i);

		if (json_array_size(v) != 3 || !json_is_number(x) ||
		    !(json_number_value(x) >= 0 &&
		      json_number_value(x) <= SECONDS_MOST)) {
			input_wrong(in, at, v,
				    "seconds of forward, backward and update, "
				    "each from 0 to %g",
				    SECONDS_MOST);
			return;
		}
		out[i] = json_number_value(x);
	}
}

static void read_sizes(struct input *in, const char *at, const json_t *v,
		       double out[3])
{
	out[0] = input_number(in, v, at, "params_floats", 0, 1e15, NAN);
	out[1] = input_number(in, v, at, "act_mem_bytes", 0, 1e15, NAN);
	out[2] = input_number(in, v, at, "act_input_bytes", 0, 1e15, NAN);
}

/* All units of a row, by one or several of its keys. NULL if one is missing. */
static double (*read_row(struct input *in, const char *at, json_t *object,
			 int units,
			 void (*read)(struct input *, const char *,
				      const json_t *, double[3])))[3]
{
	double(*row)[3] = calloc((size_t)units, sizeof(*row));
	char *seen = calloc((size_t)units, 1), path[INPUT_PATH];
	const char *key;
	json_t *v;
	int first = 0, last = -1;

	if (!row || !seen)
		in->bad = true;
	json_object_foreach(object, key, v)
	{
		double x[3] = {0};

		input_join(path, at, key);
		if (!read_units(key, units, &first, &last))
			input_wrong(in, path, v, "units from 0 to %d, as keys",
				    units - 1);
		else
			read(in, path, v, x);
		for (int i = first; !in->bad && i <= last; i++) {
			memcpy(row[i], x, sizeof(x));
			seen[i] = 1;
		}
	}
	for (int i = 0; i < units && !in->bad; i++)
		if (!seen[i])
			input_wrong(in, at, NULL, "all %d units: %d is missing",
				    units, i);
	free(seen);
	return row;
}

/* Whoever is done in no time could be given any number of layers. */
static void check_row(struct input *in, const char *at, const json_t *value,
		      const struct profile_row *r, int units)
{
	double sum = 0;

	for (int u = 0; !in->bad && u < units; u++)
		sum += r->seconds[u][0] + r->seconds[u][1];
	if (!in->bad && sum < SECONDS_LEAST)
		input_wrong(in, at, value,
			    "passes that take %g s, all units together, or "
			    "more",
			    SECONDS_LEAST);
}

static int read_degree(struct input *in, const char *path, const char *key)
{
	char *end;
	long n = strtol(key, &end, 10);

	if (*end || end == key || n < 1 || n > 1 << 20) {
		input_wrong(in, path, NULL, "a whole number above 0 as key");
		return 1;
	}
	return (int)n;
}

static struct profile_row *add_row(struct profile *p)
{
	struct profile_row *row =
		realloc(p->row, (size_t)(p->rows + 1) * sizeof(*row));

	if (!row)
		return NULL;
	p->row = row;
	row[p->rows] = (struct profile_row){0};
	return &row[p->rows++];
}

static void read_device(struct profile *p, struct input *in, const char *at,
			json_t *device, int type)
{
	char by_batch[INPUT_PATH], by_tp[INPUT_PATH];
	const char *batch, *tp;
	json_t *batches, *row;

	json_object_foreach(device, batch, batches)
	{
		input_join(by_batch, at, batch);
		if (!json_is_object(batches))
			input_wrong(in, by_batch, batches,
				    "an object of tensor-parallel degrees");
		json_object_foreach(batches, tp, row)
		{
			struct profile_row *r = add_row(p);

			input_join(by_tp, by_batch, tp);
			if (!r || in->bad)
				return;
			r->type = type;
			r->micro_batch = read_degree(in, by_batch, batch);
			r->tp = read_degree(in, by_tp, tp);
			r->seconds =
				read_row(in, by_tp, row, p->units, read_three);
			check_row(in, by_tp, row, r, p->units);
		}
	}
}

static int by_place(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;

	if (x->type != y->type)
		return x->type - y->type;
	if (x->tp != y->tp)
		return x->tp - y->tp;
	return x->micro_batch - y->micro_batch;
}

static void read_layers(struct profile *p, struct input *in)
{
	json_t *layers = json_object_get(in->root, "layers"), *row;
	char path[INPUT_PATH];
	const char *tp;

	if (layers && !json_is_object(layers))
		input_wrong(in, "layers", layers,
			    "an object of tensor-parallel degrees");
	p->size = calloc(json_object_size(layers) + 1, sizeof(*p->size));
	json_object_foreach(layers, tp, row)
	{
		struct profile_size *s = &p->size[p->sizes++];

		input_join(path, "layers", tp);
		s->tp = read_degree(in, path, tp);
		s->of = read_row(in, path, row, p->units, read_sizes);
	}
}

static void read_messages(struct profile *p, struct input *in)
{
	static const char *const keys[] = {"side_s", "buffer_bytes", "remark",
					   NULL};
	json_t *messages = json_object_get(in->root, "messages");

	if (!messages)
		return;
	if (!json_is_object(messages)) {
		input_wrong(in, "messages", messages,
			    "an object of side_s and buffer_bytes");
		return;
	}
	input_keys(in, messages, "messages", keys);
	p->side_s = input_number(in, messages, "messages", "side_s", 0,
				 SECONDS_MOST, p->side_s);
	p->buffer = input_number(in, messages, "messages", "buffer_bytes", 0,
				 1e15, p->buffer);
}

bool profile_open(struct profile *p, const char *file, const struct fleet *f,
		  const struct model *m, int seq)
{
	struct input in;
	json_t *devices;
	bool good;

	*p = profile_none();
	p->units = model_units(m);
	if (!input_open(&in, file))
		return false;
	if (input_integer(&in, in.root, NULL, "sequence", 1, 1 << 24, -1) !=
	    seq)
		input_wrong(&in, "sequence",
			    json_object_get(in.root, "sequence"),
			    "the sequence length to plan for, %d", seq);
	devices = input_object(&in, in.root, NULL, "devices");
	for (int i = 0; i < f->types && devices; i++) {
		char at[INPUT_PATH];
		json_t *device;

		input_join(at, "devices", f->type[i].name);
		device = json_object_get(devices, f->type[i].name);
		if (!json_is_object(device))
			input_wrong(&in, at, device,
				    "times of each device type of the cluster");
		read_device(p, &in, at, device, i);
	}
	read_layers(p, &in);
	read_messages(p, &in);
	p->work = input_number(&in, in.root, NULL, "work", 0, 1e3, p->work);
	if (p->rows)
		qsort(p->row, (size_t)p->rows, sizeof(*p->row), by_place);
	good = !in.bad;
	input_close(&in);
	if (!good)
		profile_close(p);
	return good;
}

void profile_close(struct profile *p)
{
	for (int i = 0; i < p->rows; i++)
		free(p->row[i].seconds);
	for (int i = 0; i < p->sizes; i++)
		free(p->size[i].of);
	free(p->row);
	free(p->size);
	*p = (struct profile){0};
}

bool profile_seconds(const struct profile *p, const struct fleet *f, int type,
		     int tp, int micro_batch, int unit, double out[3],
		     char *why, size_t len)
{
	const struct profile_row *below = NULL, *above = NULL;
	double part;

	for (int i = 0; i < p->rows; i++) {
		const struct profile_row *r = &p->row[i];

		if (r->type != type || r->tp != tp)
			continue;
		if (r->micro_batch <= micro_batch)
			below = r;
		if (r->micro_batch >= micro_batch && !above)
			above = r;
	}
	if (!below || !above) {
		const struct profile_row *near = below ? below : above;

		snprintf(why, len,
			 near ? "%s, tensor-parallel %d: measured %s "
				"micro-batch %d; %d would be a guess"
			      : "%s, tensor-parallel %d: not measured",
			 f->type[type].name, tp,
			 near == below ? "up to" : "from",
			 near ? near->micro_batch : 0, micro_batch);
		return false;
	}
	part = above == below
		       ? 0
		       : (double)(micro_batch - below->micro_batch) /
				 (above->micro_batch - below->micro_batch);
	for (int i = 0; i < 3; i++)
		out[i] = below->seconds[unit][i] * (1 - part) +
			 above->seconds[unit][i] * part;
	return true;
}

const struct profile_size *profile_size(const struct profile *p, int tp)
{
	for (int i = 0; i < p->sizes; i++)
		if (p->size[i].tp == tp)
			return &p->size[i];
	return NULL;
}
