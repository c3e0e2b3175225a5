/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/trace/merge.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* Most processes in a file: those of the next one get higher numbers. */
#define PROCESSES 64

struct trace {
	const char *file;
	json_t *events;  /* array */
	int64_t base_ns; /* time of day of the time 0 of its events */
	double first_us; /* of its events, after that; only if any */
	bool any;        /* some event has a time */
	int64_t pids[PROCESSES];
	size_t npids;
};

static bool complain(const char *file, const char *what)
{
	fprintf(stderr, "dicomm-info: --trace %s: %s\n", file, what);
	return false;
}

/* ---- reading ---- */

/* The file of a process that was killed, or still runs, ends after any byte.
 * Each event is a line; the last one may not be whole. */
static bool read_lines(struct trace *t, FILE *in)
{
	char *line = NULL;
	size_t room = 0, n = 0;
	ssize_t len;

	t->events = json_array();
	while ((len = getline(&line, &room, in)) > 0) {
		json_t *event;

		while (len && strchr(",\n\r]", line[len - 1]))
			len--;
		event = len > 1 ? json_loadb(line, (size_t)len, 0, NULL) : NULL;
		if (!event && len > 1 && !feof(in) && getc(in) != EOF) {
			free(line);
			fprintf(stderr,
				"dicomm-info: --trace %s: line %zu is no "
				"event\n",
				t->file, n + 1);
			return false;
		}
		if (event)
			json_array_append_new(t->events, event);
		n++;
	}
	free(line);
	return json_array_size(t->events) ||
	       complain(t->file, "no events of a trace");
}

/* Whole JSON: an array of events, or an object that has one. */
static bool read_whole(struct trace *t, json_t *whole)
{
	json_t *base = json_object_get(whole, "baseTimeNanoseconds");

	t->events = json_is_array(whole)
			    ? whole
			    : json_object_get(whole, "traceEvents");
	if (!json_is_array(t->events)) {
		t->events = NULL;
		return complain(t->file, "no events of a trace");
	}
	json_incref(t->events);
	if (base)
		t->base_ns = json_integer_value(base);
	return true;
}

static bool read_trace(struct trace *t)
{
	FILE *in = fopen(t->file, "re");
	json_t *whole;
	bool good;

	if (!in)
		return complain(t->file, strerror(errno));
	whole = json_loadf(in, 0, NULL);
	if (whole) {
		good = read_whole(t, whole);
		json_decref(whole);
	} else {
		rewind(in);
		good = read_lines(t, in);
	}
	fclose(in);
	return good;
}

/* ---- one time, and numbers of processes ---- */

static bool is_named(const json_t *event, const char *name)
{
	const char *given = json_string_value(json_object_get(event, "name"));

	return given && !strcmp(given, name);
}

static void find_base(struct trace *t)
{
	json_t *event, *args;
	size_t i;

	json_array_foreach(t->events, i, event)
	{
		args = json_object_get(event, "args");
		if (!is_named(event, "dicomm_midnight"))
			continue;
		t->base_ns = json_integer_value(json_object_get(args, "ns"));
		json_array_remove(t->events, i);
		return;
	}
}

static void find_first(struct trace *t)
{
	json_t *event, *ts;
	size_t i;

	json_array_foreach(t->events, i, event)
	{
		double us;

		ts = json_object_get(event, "ts");
		if (!json_is_number(ts))
			continue;
		us = json_number_value(ts);
		if (!t->any || us < t->first_us)
			t->first_us = us;
		t->any = true;
	}
}

/* Time of day of the first event, in nanoseconds */
static int64_t first_ns(const struct trace *t)
{
	return t->base_ns + (int64_t)(t->first_us * 1000.0);
}

/* Returns the place of a process among those of its file. */
static size_t place_of(struct trace *t, int64_t pid)
{
	size_t i = 0;

	while (i < t->npids && t->pids[i] != pid)
		i++;
	if (i == PROCESSES)
		return PROCESSES - 1;
	if (i == t->npids)
		t->pids[t->npids++] = pid;
	return i;
}

static void shift(struct trace *t, size_t number, int64_t start_ns)
{
	json_t *event, *ts, *pid;
	size_t i;

	json_array_foreach(t->events, i, event)
	{
		ts = json_object_get(event, "ts");
		pid = json_object_get(event, "pid");
		if (json_is_number(ts))
			json_object_set_new(
				event, "ts",
				json_real((double)(t->base_ns - start_ns) /
						  1000.0 +
					  json_number_value(ts)));
		if (json_is_integer(pid))
			json_object_set_new(
				event, "pid",
				json_integer((
					json_int_t)(number * PROCESSES +
						    place_of(t,
							     json_integer_value(
								     pid)))));
	}
}

static bool print(struct trace *traces, size_t n, int64_t start_ns)
{
	json_t *all = json_array(), *whole;
	int status;

	for (size_t i = 0; i < n; i++) {
		shift(&traces[i], i, start_ns);
		json_array_extend(all, traces[i].events);
	}
	whole = json_pack("{s:s, s:I, s:o}", "displayTimeUnit", "ns",
			  "baseTimeNanoseconds", (json_int_t)start_ns,
			  "traceEvents", all);
	status = json_dumpf(whole, stdout,
			    JSON_COMPACT | JSON_PRESERVE_ORDER |
				    JSON_REAL_PRECISION(14));
	printf("\n");
	json_decref(whole);
	return !status || complain("-", "cannot be written");
}

bool merge_traces(const char *const *files)
{
	size_t n = 0, read = 0;
	struct trace *traces;
	int64_t start_ns = INT64_MAX;
	bool good = true;

	while (files[n])
		n++;
	traces = calloc(n, sizeof(*traces));
	if (!traces)
		return complain(files[0], "out of memory");
	for (; good && read < n; read++) {
		struct trace *t = &traces[read];

		t->file = files[read];
		good = read_trace(t);
		if (!good)
			continue;
		find_base(t);
		find_first(t);
		if (t->any && first_ns(t) < start_ns)
			start_ns = first_ns(t);
	}
	if (good)
		good = print(traces, n, start_ns == INT64_MAX ? 0 : start_ns);
	for (size_t i = 0; i < read; i++)
		json_decref(traces[i].events);
	free(traces);
	return good;
}
