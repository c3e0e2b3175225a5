/* SPDX-License-Identifier: BSD-3-Clause */
/* Matches receives with a tag to messages, by a table of source and tag. */
#include "src/engine/matching.h"

#include <stdlib.h>

#define LEAST_ROOM 64

struct line {
	int source, tag;
	struct line *next; /* of its place in the table */
	struct op_list receives, sends;
	struct operation *telling; /* a send, which has left the list */
	struct arrival *arrived, **arrived_end;
	/* Of MATCHING_ANY: lines of this tag that have messages, in the order
	 * of their turns; and how many lines of this tag there are. */
	struct line *turns, **turns_end;
	size_t of_tag;
	/* Of a source: the next one in that order, and the line of its tag */
	struct line *next_turn;
	struct line *any;
};

void op_list_append(struct op_list *list, struct operation *op)
{
	op->tagged.next = NULL;
	if (list->first)
		list->last->tagged.next = op;
	else
		list->first = op;
	list->last = op;
}

void op_list_remove(struct op_list *list, struct operation *op)
{
	struct operation *before = NULL, *at = list->first;

	while (at && at != op) {
		before = at;
		at = at->tagged.next;
	}
	if (!at)
		return;
	if (before)
		before->tagged.next = op->tagged.next;
	else
		list->first = op->tagged.next;
	if (list->last == op)
		list->last = before;
}

/* ---- the table ---- */

static size_t place_of(size_t room, int source, int tag)
{
	uint64_t key = (uint64_t)(uint32_t)source << 32 | (uint32_t)tag;

	return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);
}

static inline bool is_of(const struct line *line, int source, int tag)
{
	return line->tag == tag && line->source == source;
}

static struct line *look_up(struct matching *m, int source, int tag)
{
	struct line *line;

	if (!m->room)
		return NULL;
	line = m->lines[place_of(m->room, source, tag)];
	while (line && !is_of(line, source, tag))
		line = line->next;
	if (line)
		m->latest = line;
	return line;
}

static inline struct line *find(struct matching *m, int source, int tag)
{
	if (m->latest && is_of(m->latest, source, tag))
		return m->latest;
	return look_up(m, source, tag);
}

static bool is_empty(const struct line *line)
{
	return !line->receives.first && !line->sends.first && !line->telling &&
	       !line->arrived && !line->of_tag;
}

/* Free the lines in which nothing waits. */
static void sweep(struct matching *m)
{
	m->latest = NULL;
	for (size_t i = 0; i < m->room; i++)
		for (struct line **at = &m->lines[i], *line; (line = *at);) {
			if (!is_empty(line)) {
				at = &line->next;
				continue;
			}
			*at = line->next;
			m->n--;
			if (line->any)
				line->any->of_tag--;
			free(line);
		}
}

static bool grow(struct matching *m)
{
	size_t room = m->room ? 2 * m->room : LEAST_ROOM;
	struct line **lines = calloc(room, sizeof(struct line *)), *line;

	if (!lines)
		return false;
	for (size_t i = 0; i < m->room; i++)
		while ((line = m->lines[i])) {
			struct line **to =
				&lines[place_of(room, line->source, line->tag)];

			m->lines[i] = line->next;
			line->next = *to;
			*to = line;
		}
	free(m->lines);
	m->lines = lines;
	m->room = room;
	return true;
}

/* Lines stay when they are empty, since most tags come again. When the table is
 * full of them, they go; it grows if few went. */
static bool make_room(struct matching *m)
{
	if (m->n < m->room)
		return true;
	sweep(m);
	return m->n < m->room / 2 || grow(m);
}

static struct line *insert(struct matching *m, int source, int tag)
{
	struct line *line = calloc(1, sizeof(*line)), **to;

	if (!line)
		return NULL;
	line->source = source;
	line->tag = tag;
	line->arrived_end = &line->arrived;
	line->turns_end = &line->turns;
	to = &m->lines[place_of(m->room, source, tag)];
	line->next = *to;
	*to = line;
	m->n++;
	return line;
}

static struct line *get(struct matching *m, int source, int tag)
{
	struct line *line = find(m, source, tag);

	if (line)
		return line;
	return make_room(m) ? insert(m, source, tag) : NULL;
}

/* ---- receives and messages ---- */

static struct operation *pop(struct op_list *list)
{
	struct operation *op = list->first;

	list->first = op->tagged.next;
	return op;
}

struct operation *matching_receive(struct matching *m, int source, int tag)
{
	struct line *line = find(m, source, tag), *any = NULL;
	struct operation *op = line ? line->receives.first : NULL, *other;

	if (m->anys)
		any = find(m, MATCHING_ANY, tag);
	other = any ? any->receives.first : NULL;
	if (other && (!op || other->number < op->number)) {
		m->anys--;
		return pop(&any->receives);
	}
	return op ? pop(&line->receives) : NULL;
}

static void queue_turn(struct line *line)
{
	line->next_turn = NULL;
	*line->any->turns_end = line;
	line->any->turns_end = &line->next_turn;
}

static void leave_turns(struct line *line)
{
	struct line **at = &line->any->turns;

	while (*at != line)
		at = &(*at)->next_turn;
	*at = line->next_turn;
	if (!*at)
		line->any->turns_end = at;
}

/* `any` is there before its lines, and a sweep keeps it while they are. */
static struct line *get_of_source(struct matching *m, int source, int tag)
{
	struct line *any, *line = find(m, source, tag);

	if (line && line->any)
		return line;
	any = get(m, MATCHING_ANY, tag);
	if (!any)
		return NULL;
	any->of_tag++;
	line = get(m, source, tag);
	if (line)
		line->any = any;
	else
		any->of_tag--;
	return line;
}

bool matching_keep(struct matching *m, struct arrival *a)
{
	struct line *line = get_of_source(m, a->source, a->tag);

	if (!line)
		return false;
	if (!line->arrived)
		queue_turn(line);
	a->next = NULL;
	*line->arrived_end = a;
	line->arrived_end = &a->next;
	return true;
}

/* The line that a receive takes its message from */
static struct line *line_for(struct matching *m, int source, int tag)
{
	struct line *line = find(m, source, tag);

	return line && source == MATCHING_ANY ? line->turns : line;
}

bool matching_has(struct matching *m, int source, int tag)
{
	const struct line *line = line_for(m, source, tag);

	return line && line->arrived;
}

struct arrival *matching_take(struct matching *m, int source, int tag)
{
	struct line *line = line_for(m, source, tag);
	struct arrival *a = line ? line->arrived : NULL;

	if (!a)
		return NULL;
	line->arrived = a->next;
	if (!a->next)
		line->arrived_end = &line->arrived;
	/* A turn is over, or nothing is left to take. */
	if (source == MATCHING_ANY || !line->arrived)
		leave_turns(line);
	if (source == MATCHING_ANY && line->arrived)
		queue_turn(line);
	return a;
}

bool matching_post(struct matching *m, struct operation *op)
{
	struct line *line = get(m, op->call.root, op->call.tag);

	if (!line)
		return false;
	m->anys += op->call.root == MATCHING_ANY;
	op_list_append(&line->receives, op);
	return true;
}

bool matching_drop(struct matching *m, struct operation *op)
{
	struct line *line = find(m, op->call.root, op->call.tag);
	struct operation *at = line ? line->receives.first : NULL;

	while (at && at != op)
		at = at->tagged.next;
	if (!at)
		return false;
	op_list_remove(&line->receives, op);
	m->anys -= op->call.root == MATCHING_ANY;
	return true;
}

/* ---- sends ---- */

bool matching_send(struct matching *m, struct operation *op)
{
	struct line *line = get(m, op->call.root, op->call.tag);

	if (line)
		op_list_append(&line->sends, op);
	return line;
}

bool matching_may_tell(struct matching *m, struct operation *op)
{
	struct line *line = find(m, op->call.root, op->call.tag);

	if (line->telling || line->sends.first != op)
		return false;
	line->telling = pop(&line->sends);
	return true;
}

struct operation *matching_told(struct matching *m, struct operation *op)
{
	struct line *line = find(m, op->call.root, op->call.tag);

	line->telling = NULL;
	if (line->sends.first && line->sends.first->tagged.begun)
		line->telling = pop(&line->sends);
	return line->telling;
}

void matching_drop_send(struct matching *m, struct operation *op)
{
	struct line *line = find(m, op->call.root, op->call.tag);

	if (!line)
		return;
	op_list_remove(&line->sends, op);
	if (line->telling == op)
		line->telling = NULL;
}

void matching_free(struct matching *m, void (*release)(struct arrival *a))
{
	for (size_t i = 0; i < m->room; i++)
		for (struct line *line = m->lines[i], *next; line;
		     line = next) {
			next = line->next;
			for (struct arrival *a = line->arrived, *after; a;
			     a = after) {
				after = a->next;
				release(a);
			}
			free(line);
		}
	free(m->lines);
	*m = (struct matching){0};
}
