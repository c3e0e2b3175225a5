/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes timelines: the trace format of Chrome, and SVG. */
#include "planner/output/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "planner/input/input.h"

/* Of a picture. More events than that no viewer shows. */
#define WIDTH 1200.0
#define ROW 18
#define LEFT 190
#define EVENTS_DRAWN 20000

void timeline_add(const struct schedule_event *e, void *ctx)
{
	struct timeline *t = ctx;

	if (t->events == t->room) {
		size_t room = t->room ? t->room * 2 : 1024;
		struct schedule_event *list =
			realloc(t->event, room * sizeof(*list));

		if (!list) {
			t->bad = true;
			return;
		}
		t->event = list;
		t->room = room;
	}
	t->event[t->events++] = *e;
}

void timeline_free(struct timeline *t)
{
	free(t->event);
	*t = (struct timeline){0};
}

static FILE *create(const struct timeline *t, const char *file)
{
	FILE *out = t->bad ? NULL : fopen(file, "we");

	if (t->bad)
		input_complain("%s: out of memory", file);
	else if (!out)
		input_complain("%s: %m", file);
	return out;
}

static bool finish(FILE *out, const char *file)
{
	bool bad = ferror(out);

	bad |= fclose(out) != 0;
	if (bad)
		input_complain("%s: could not be written: %m", file);
	return !bad;
}

static const char *word(char what)
{
	switch (what) {
	case 'F':
		return "forward";
	case 'B':
		return "backward";
	case 'W':
		return "weights";
	case 's':
		return "activation";
	default:
		return "gradient";
	}
}

static bool is_message(const struct schedule_event *e)
{
	return e->what == 's' || e->what == 'g';
}

/* Which micro-batch; of devices that hold several stages, of which. */
static void name_event(char *to, size_t len, const struct schedule_event *e,
		       const struct plan_pipeline *l)
{
	if (plan_chunks(l) > 1)
		snprintf(to, len, "%s %d, stage %d", word(e->what),
			 e->micro_batch, e->stage);
	else
		snprintf(to, len, "%s %d", word(e->what), e->micro_batch);
}

/* Names come from files: they are printed as JSON, and cleaned for SVG. */
bool timeline_trace(const struct timeline *t, const struct job *j,
		    const struct plan *p, const char *file)
{
	FILE *out = create(t, file);
	const char *comma = "";

	if (!out)
		return false;
	fprintf(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];
			char text[160];
			json_t *name;

			snprintf(text, sizeof(text), "stage %d: %s x %d", s,
				 fleet_type(&j->fleet, st->rank[0])->name,
				 st->tp);
			name = json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}",
					 "name", "thread_name", "ph", "M",
					 "pid", i, "tid", 2 * s, "args", "name",
					 text);
			fputs(comma, out);
			json_dumpf(name, out, JSON_COMPACT);
			json_decref(name);
			comma = ",\n";
		}
	}
	for (size_t k = 0; k < t->events; k++) {
		const struct schedule_event *e = &t->event[k];
		const struct plan_pipeline *l = &p->pipeline[e->pipeline];
		char name[64];

		name_event(name, sizeof(name), e, l);
		fprintf(out,
			"%s{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": "
			"\"X\", \"ts\": %.3f, \"dur\": %.3f, \"pid\": %d, "
			"\"tid\": %d}",
			comma, name, word(e->what), e->begin * 1e6,
			(e->end - e->begin) * 1e6, e->pipeline,
			2 * (e->stage % plan_teams(l)) + is_message(e));
		comma = ",\n";
	}
	fprintf(out, "\n]}\n");
	return finish(out, file);
}

static void clean(char *to, size_t len, const char *from)
{
	size_t n = 0;

	for (; *from && n + 1 < len; from++)
		to[n++] = *from == '<' || *from == '>' || *from == '&' ||
					  *from < ' ' || *from > '~'
				  ? '?'
				  : *from;
	to[n] = '\0';
}

static const char *colour(char what)
{
	switch (what) {
	case 'F':
		return "#4c78a8";
	case 'B':
		return "#59a14f";
	case 'W':
		return "#b07aa1";
	default:
		return "#f28e2b";
	}
}

/* Of later stages of the same devices paler. */
static double shade(const struct schedule_event *e,
		    const struct plan_pipeline *l)
{
	int chunk = e->stage / plan_teams(l);

	return 1 - 0.6 * chunk / plan_chunks(l);
}

/* Layers of a row: of all its stages, or of the first one and how many more. */
static void name_layers(char *to, size_t len, const struct plan_pipeline *l,
			int team)
{
	const struct plan_stage *st = &l->stage[team];

	if (plan_chunks(l) > 1)
		snprintf(to, len, "%d-%d and %d more", st->first, st->last,
			 plan_chunks(l) - 1);
	else
		snprintf(to, len, "%d-%d", st->first, st->last);
}

bool timeline_svg(const struct timeline *t, const struct job *j,
		  const struct plan *p, const struct cost *c, const char *file)
{
	FILE *out = create(t, file);
	double scale = (WIDTH - LEFT - 10) / c->step;
	int rows = 0, *first = calloc((size_t)p->pipelines, sizeof(*first));
	size_t drawn = t->events < EVENTS_DRAWN ? t->events : EVENTS_DRAWN;

	if (!out || !first) {
		free(first);
		if (out)
			fclose(out);
		return false;
	}
	for (int i = 0; i < p->pipelines; i++) {
		first[i] = rows;
		rows += plan_teams(&p->pipeline[i]) + 1;
	}
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" "
		"height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"5\" y=\"14\">step %.4f s: forward (blue), backward "
		"(green), %smessages (orange), gradients and update (grey)"
		"</text>\n",
		WIDTH, (rows + 2) * ROW, c->step,
		p->schedule == PLAN_ZB_H1 ? "of weights (purple), " : "");
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];
			double end = c->pipe;
			char name[40], layers[48];

			name_layers(layers, sizeof(layers), &p->pipeline[i], s);
			clean(name, sizeof(name),
			      fleet_type(&j->fleet, st->rank[0])->name);
			fprintf(out,
				"<text x=\"5\" y=\"%d\">%d.%d %s x %d, %s"
				"</text>\n"
				"<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
				"height=\"%d\" fill=\"#bab0ac\"/>\n",
				(first[i] + s + 2) * ROW - 5, i, s, name,
				st->tp, layers, LEFT + end * scale,
				(first[i] + s + 1) * ROW + 2,
				(c->step - end) * scale, ROW - 4);
		}
	}
	for (size_t k = 0; k < drawn; k++) {
		const struct schedule_event *e = &t->event[k];
		const struct plan_pipeline *l = &p->pipeline[e->pipeline];
		int row = first[e->pipeline] + e->stage % plan_teams(l);
		int y = (row + 1) * ROW + 2;
		bool message = is_message(e);
		char name[64];

		name_event(name, sizeof(name), e, l);

		fprintf(out,
			"<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\""
			"%d\" fill=\"%s\" fill-opacity=\"%.2f\" "
			"stroke=\"white\" stroke-width=\"0.3\">"
			"<title>%s</title></rect>\n",
			LEFT + e->begin * scale, message ? y + ROW - 7 : y,
			fmax((e->end - e->begin) * scale, 0.3),
			message ? 4 : ROW - 8, colour(e->what), shade(e, l),
			name);
	}
	if (drawn < t->events)
		fprintf(out,
			"<text x=\"%d\" y=\"%d\">the first %zu of %zu events"
			"</text>\n",
			LEFT, (rows + 1) * ROW + 8, drawn, t->events);
	fprintf(out, "</svg>\n");
	free(first);
	return finish(out, file);
}
