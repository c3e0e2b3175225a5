/* SPDX-License-Identifier: BSD-3-Clause */
/* Graphs of devices that do not exist. */
#include "tests/mock/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/mock/driver.h"

#define NAP_NS 20000

struct graph_node {
	int device;
	int (*fn)(void *arg);
	void *arg;
	size_t bytes;
	struct graph_node **after;
	size_t nafter;
	size_t place; /* in its graph */
	struct graph_node *next;
};

struct graph_object {
	void *ptr;
	void (*destroy)(void *);
	unsigned refs;
};

struct kept {
	struct graph_object *object;
	unsigned refs;
	struct kept *next;
};

struct graph {
	struct graph_node *first, **last;
	size_t n;
	struct kept *objects;
	bool dead;
	struct graph *next;
};

/* What a launch runs, whatever happens to the graph and the executable */
struct program {
	unsigned refs;
	struct graph graph;
};

struct graph_exec {
	struct program *program;
	uint64_t launched, ran; /* launches of one run one after the other */
	bool dead;
	struct graph_exec *next;
};

/* A stream that takes part in a capture */
struct part {
	struct driver_stream *stream;
	struct graph_mark at;
	struct part *next;
};

struct capture {
	uint64_t id;
	int mode;
	pthread_t thread;
	struct driver_stream *origin;
	struct graph *graph;
	struct part *parts;
	bool invalid;
	struct capture *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
/* They stay, so that a stale one is found out. */
static struct graph *graphs;
static struct graph_exec *execs;
static uint64_t ids;
static int live;

int graph_live(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = live;
	pthread_mutex_unlock(&lock);
	return n;
}

/* ---- objects of users ---- */

/* Takes references; returns the object if it is to be destroyed. */
static struct graph_object *drop(struct graph_object *object, unsigned refs)
{
	object->refs -= refs;
	return object->refs ? NULL : object;
}

/* Without the lock. It must not call the driver. */
static void end_object(struct graph_object *object)
{
	driver_call_back(object->destroy, object->ptr);
	free(object);
}

static void end_objects(struct kept *list)
{
	struct kept *k;

	while ((k = list)) {
		struct graph_object *over;

		list = k->next;
		pthread_mutex_lock(&lock);
		over = drop(k->object, k->refs);
		pthread_mutex_unlock(&lock);
		if (over)
			end_object(over);
		free(k);
	}
}

int graph_object_create(struct graph_object **out, void *ptr,
			void (*destroy)(void *), unsigned refs)
{
	struct graph_object *object = calloc(1, sizeof(*object));

	if (!object)
		return DRIVER_OUT_OF_MEMORY;
	if (!destroy || !refs) {
		free(object);
		return DRIVER_INVALID_VALUE;
	}
	object->ptr = ptr;
	object->destroy = destroy;
	object->refs = refs;
	*out = object;
	return DRIVER_SUCCESS;
}

int graph_object_release(struct graph_object *object, unsigned refs)
{
	struct graph_object *over;

	pthread_mutex_lock(&lock);
	if (refs > object->refs) {
		pthread_mutex_unlock(&lock);
		return DRIVER_INVALID_VALUE;
	}
	over = drop(object, refs);
	pthread_mutex_unlock(&lock);
	if (over)
		end_object(over);
	return DRIVER_SUCCESS;
}

static int keep(struct graph *graph, struct graph_object *object, unsigned refs)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k)
		return DRIVER_OUT_OF_MEMORY;
	*k = (struct kept){object, refs, graph->objects};
	graph->objects = k;
	return DRIVER_SUCCESS;
}

static bool exists(const struct graph *graph)
{
	for (const struct graph *g = graphs; g; g = g->next)
		if (g == graph)
			return !g->dead;
	return false;
}

int graph_keep(struct graph *graph, struct graph_object *object, unsigned refs,
	       bool moves)
{
	int error = DRIVER_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (exists(graph) && refs)
		error = keep(graph, object, refs);
	if (!error && !moves)
		object->refs += refs;
	pthread_mutex_unlock(&lock);
	return error;
}

/* ---- graphs ---- */

static void init(struct graph *graph)
{
	*graph = (struct graph){0};
	graph->last = &graph->first;
}

/* Returns what it kept. */
static struct kept *empty(struct graph *graph)
{
	struct kept *objects = graph->objects;
	struct graph_node *node;

	while ((node = graph->first)) {
		graph->first = node->next;
		free(node->after);
		free(node->arg);
		free(node);
	}
	graph->objects = NULL;
	graph->last = &graph->first;
	graph->n = 0;
	return objects;
}

static bool has(const struct graph *graph, const struct graph_node *node)
{
	for (const struct graph_node *k = graph->first; k; k = k->next)
		if (k == node)
			return true;
	return false;
}

static int add(struct graph *graph, struct graph_node **out,
	       struct graph_node *const *after, size_t n, int device,
	       int (*fn)(void *arg), const void *arg, size_t bytes)
{
	struct graph_node *node;

	for (size_t i = 0; i < n; i++) {
		if (!has(graph, after[i]))
			return DRIVER_INVALID_VALUE;
		for (size_t j = 0; j < i; j++)
			if (after[i] == after[j])
				return DRIVER_INVALID_VALUE;
	}
	node = calloc(1, sizeof(*node));
	if (!node)
		return DRIVER_OUT_OF_MEMORY;
	node->device = device;
	node->fn = fn;
	node->bytes = bytes;
	node->arg = malloc(bytes);
	node->after = calloc(n + 1, sizeof(*node->after));
	memcpy(node->arg, arg, bytes);
	for (size_t i = 0; i < n; i++)
		node->after[node->nafter++] = after[i];
	node->place = graph->n++;
	*graph->last = node;
	graph->last = &node->next;
	*out = node;
	return DRIVER_SUCCESS;
}

int graph_add(struct graph *graph, struct graph_node **out,
	      struct graph_node *const *after, size_t n, int device,
	      int (*fn)(void *arg), const void *arg, size_t bytes)
{
	int error = DRIVER_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (exists(graph))
		error = add(graph, out, after, n, device, fn, arg, bytes);
	pthread_mutex_unlock(&lock);
	return error;
}

static struct graph *graph_new(void)
{
	struct graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	init(graph);
	graph->next = graphs;
	graphs = graph;
	live++;
	return graph;
}

int graph_destroy(struct graph *graph)
{
	struct kept *objects = NULL;
	bool was;

	pthread_mutex_lock(&lock);
	was = exists(graph);
	if (was) {
		objects = empty(graph);
		graph->dead = true;
		live--;
	}
	pthread_mutex_unlock(&lock);
	end_objects(objects);
	return was ? DRIVER_SUCCESS : DRIVER_INVALID_VALUE;
}

/* ---- captures ---- */

static struct part *part_of(const struct capture *c,
			    const struct driver_stream *s)
{
	struct part *p = c->parts;

	while (p && p->stream != s)
		p = p->next;
	return p;
}

/* NULL: the stream is not captured. */
static struct capture *capture_of(const struct driver_stream *s,
				  struct part **part)
{
	struct capture *c = captures;

	while (s && c && !(*part = part_of(c, s)))
		c = c->next;
	return s ? c : NULL;
}

static int join(struct capture *c, struct driver_stream *s)
{
	struct part *p = calloc(1, sizeof(*p));

	if (!p)
		return DRIVER_OUT_OF_MEMORY;
	p->stream = s;
	p->at.capture = c->id;
	p->next = c->parts;
	c->parts = p;
	return DRIVER_SUCCESS;
}

int graph_begin(struct driver_stream *s, int mode)
{
	struct capture *c;
	struct part *part;
	int error = DRIVER_SUCCESS;

	if (!s || driver_stream_device(s) < 0)
		return DRIVER_SPOILS_CAPTURE;
	if (mode < DRIVER_GLOBAL || mode > DRIVER_RELAXED)
		return DRIVER_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (c) {
		c->invalid = true;
		error = DRIVER_INVALID_VALUE;
	} else {
		c = calloc(1, sizeof(*c));
		*c = (struct capture){.id = ++ids,
				      .mode = mode,
				      .thread = pthread_self(),
				      .origin = s,
				      .graph = graph_new(),
				      .next = captures};
		captures = c;
		error = join(c, s);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Does one of the nodes, or what it comes after, be that one? */
static bool leads_to(const struct graph_node *node,
		     struct graph_node *const *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (from[i] == node ||
		    leads_to(node, from[i]->after, from[i]->nafter))
			return true;
	return false;
}

/* Has each branch been joined by the stream that the capture began with? */
static bool is_joined(const struct capture *c)
{
	const struct part *origin = part_of(c, c->origin);

	for (const struct part *p = c->parts; p; p = p->next)
		for (size_t i = 0; i < p->at.n; i++)
			if (!leads_to(p->at.nodes[i], origin->at.nodes,
				      origin->at.n))
				return false;
	return true;
}

static void capture_free(struct capture *c)
{
	struct capture **at = &captures;
	struct part *p;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	while ((p = c->parts)) {
		c->parts = p->next;
		free(p);
	}
	free(c);
}

int graph_end(struct driver_stream *s, struct graph **out)
{
	struct graph *graph = NULL;
	struct capture *c;
	struct part *part;
	int error = DRIVER_SUCCESS;

	*out = NULL;
	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (!c)
		error = DRIVER_INVALID_VALUE;
	else if (c->origin != s)
		error = DRIVER_CAPTURE_UNMATCHED;
	else if (c->mode != DRIVER_RELAXED &&
		 !pthread_equal(c->thread, pthread_self()))
		error = DRIVER_CAPTURE_THREAD;
	if (error) {
		if (c)
			c->invalid = true;
		pthread_mutex_unlock(&lock);
		return error;
	}
	if (c->invalid)
		error = DRIVER_CAPTURE_INVALID;
	else if (!is_joined(c))
		error = DRIVER_CAPTURE_UNJOINED;
	graph = c->graph;
	capture_free(c);
	pthread_mutex_unlock(&lock);
	if (error)
		graph_destroy(graph);
	else
		*out = graph;
	return error;
}

int graph_info(struct driver_stream *s, int *state, uint64_t *capture,
	       struct graph **graph, struct graph_node *const **nodes,
	       size_t *n)
{
	struct capture *c;
	struct part *part;

	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	*state = !c ? GRAPH_NONE : c->invalid ? GRAPH_INVALID : GRAPH_ACTIVE;
	if (*state == GRAPH_ACTIVE) {
		if (capture)
			*capture = c->id;
		if (graph)
			*graph = c->graph;
		if (nodes)
			*nodes = part->at.nodes;
		if (n)
			*n = part->at.n;
	}
	pthread_mutex_unlock(&lock);
	return DRIVER_SUCCESS;
}

static int follow(struct capture *c, struct part *part,
		  struct graph_node *const *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool known = false;

		if (!has(c->graph, nodes[i]))
			return DRIVER_INVALID_VALUE;
		for (size_t j = 0; j < part->at.n; j++)
			known |= part->at.nodes[j] == nodes[i];
		if (known)
			continue;
		if (part->at.n == GRAPH_MARKS)
			return DRIVER_OUT_OF_MEMORY;
		part->at.nodes[part->at.n++] = nodes[i];
	}
	return DRIVER_SUCCESS;
}

int graph_follow(struct driver_stream *s, struct graph_node *const *nodes,
		 size_t n, bool only)
{
	struct graph_mark was;
	struct capture *c;
	struct part *part;
	int error = 401; /* illegal state */

	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (c && !c->invalid) {
		was = part->at;
		if (only)
			part->at.n = 0;
		error = follow(c, part, nodes, n);
		if (error)
			part->at = was;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int graph_state(struct driver_stream *s)
{
	int state;

	graph_info(s, &state, NULL, NULL, NULL, NULL);
	return state;
}

int graph_take(struct driver_stream *s, int device, int (*fn)(void *arg),
	       const void *arg, size_t bytes)
{
	struct graph_node *node;
	struct capture *c;
	struct part *part;
	int error = DRIVER_CAPTURE_INVALID;

	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (c && !c->invalid)
		error = add(c->graph, &node, part->at.nodes, part->at.n, device,
			    fn, arg, bytes);
	if (!error) {
		part->at.nodes[0] = node;
		part->at.n = 1;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int graph_spoil(struct driver_stream *s)
{
	struct capture *c;
	struct part *part;

	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (c)
		c->invalid = true;
	pthread_mutex_unlock(&lock);
	return DRIVER_SPOILS_CAPTURE;
}

int graph_record(struct driver_stream *s, struct graph_mark *mark)
{
	struct capture *c;
	struct part *part;
	int error = DRIVER_CAPTURE_INVALID;

	pthread_mutex_lock(&lock);
	c = capture_of(s, &part);
	if (c && !c->invalid) {
		*mark = part->at;
		error = DRIVER_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* The capture that the mark is of; NULL: it has ended. */
static struct capture *capture_marked(const struct graph_mark *mark)
{
	struct capture *c = captures;

	while (c && c->id != mark->capture)
		c = c->next;
	return c;
}

static int join_marked(struct driver_stream *s, const struct graph_mark *mark)
{
	struct capture *of = capture_marked(mark), *c;
	struct part *part = NULL;

	c = capture_of(s, &part);
	if (!mark->capture && c) {
		c->invalid = true;
		return DRIVER_CAPTURE_ISOLATION;
	}
	if (!of)
		return DRIVER_INVALID_VALUE;
	if (of->invalid)
		return DRIVER_CAPTURE_INVALID;
	if (c && c != of) {
		c->invalid = of->invalid = true;
		return DRIVER_CAPTURE_MERGE;
	}
	if (!c) {
		int error = s ? join(of, s) : DRIVER_CAPTURE_IMPLICIT;

		if (error)
			return error;
		part = part_of(of, s);
	}
	return follow(of, part, mark->nodes, mark->n);
}

int graph_join(struct driver_stream *s, const struct graph_mark *mark)
{
	int error;

	pthread_mutex_lock(&lock);
	error = join_marked(s, mark);
	pthread_mutex_unlock(&lock);
	return error;
}

int graph_unsafe(int mode)
{
	bool any = false;

	if (mode == DRIVER_RELAXED)
		return DRIVER_SUCCESS;
	pthread_mutex_lock(&lock);
	for (struct capture *c = captures; c; c = c->next) {
		bool own = pthread_equal(c->thread, pthread_self());

		if (own ? c->mode == DRIVER_RELAXED
			: c->mode != DRIVER_GLOBAL || mode != DRIVER_GLOBAL)
			continue;
		c->invalid = true;
		any = true;
	}
	pthread_mutex_unlock(&lock);
	return any ? DRIVER_SPOILS_CAPTURE : DRIVER_SUCCESS;
}

/* ---- executables ---- */

static struct graph_node *node_at(const struct graph *graph, size_t place)
{
	struct graph_node *node = graph->first;

	while (place--)
		node = node->next;
	return node;
}

/* Nodes only come after older ones. */
static int copy(struct graph *to, const struct graph *from)
{
	for (const struct graph_node *k = from->first; k; k = k->next) {
		struct graph_node **after =
			calloc(k->nafter + 1, sizeof(struct graph_node *));
		struct graph_node *node;
		int error;

		for (size_t i = 0; i < k->nafter; i++)
			after[i] = node_at(to, k->after[i]->place);
		error = add(to, &node, after, k->nafter, k->device, k->fn,
			    k->arg, k->bytes);
		free(after);
		if (error)
			return error;
	}
	for (const struct kept *k = from->objects; k; k = k->next) {
		k->object->refs += k->refs;
		keep(to, k->object, k->refs);
	}
	return DRIVER_SUCCESS;
}

static int program_new(const struct graph *graph, struct program **out)
{
	struct program *p = calloc(1, sizeof(*p));

	if (!p)
		return DRIVER_OUT_OF_MEMORY;
	p->refs = 1;
	init(&p->graph);
	*out = p;
	return copy(&p->graph, graph);
}

static void program_put(struct program *p)
{
	struct kept *objects = NULL;
	bool over;

	pthread_mutex_lock(&lock);
	over = !--p->refs;
	if (over)
		objects = empty(&p->graph);
	pthread_mutex_unlock(&lock);
	end_objects(objects);
	if (over)
		free(p);
}

static bool exec_exists(const struct graph_exec *exec)
{
	for (const struct graph_exec *e = execs; e; e = e->next)
		if (e == exec)
			return !e->dead;
	return false;
}

int graph_instantiate(struct graph *graph, struct graph_exec **out)
{
	struct graph_exec *exec = calloc(1, sizeof(*exec));
	int error = DRIVER_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (exec && exists(graph))
		error = program_new(graph, &exec->program);
	if (!error) {
		exec->next = execs;
		execs = exec;
		live++;
	}
	pthread_mutex_unlock(&lock);
	if (error)
		free(exec);
	else
		*out = exec;
	return error;
}

/* Of the same kinds of nodes, with the same dependencies */
static bool is_alike(const struct graph *a, const struct graph *b)
{
	const struct graph_node *x = a->first, *y = b->first;

	if (a->n != b->n)
		return false;
	for (; x; x = x->next, y = y->next) {
		if (x->fn != y->fn || x->device != y->device ||
		    x->nafter != y->nafter)
			return false;
		for (size_t i = 0; i < x->nafter; i++)
			if (x->after[i]->place != y->after[i]->place)
				return false;
	}
	return true;
}

int graph_update(struct graph_exec *exec, struct graph *graph)
{
	struct program *was = NULL, *fresh = NULL;
	int error = DRIVER_INVALID_VALUE;

	pthread_mutex_lock(&lock);
	if (exec_exists(exec) && exists(graph))
		error = is_alike(&exec->program->graph, graph)
				? program_new(graph, &fresh)
				: DRIVER_UPDATE_FAILED;
	if (!error) {
		was = exec->program;
		exec->program = fresh;
	}
	pthread_mutex_unlock(&lock);
	if (was)
		program_put(was);
	return error;
}

int graph_exec_destroy(struct graph_exec *exec)
{
	struct program *was = NULL;

	pthread_mutex_lock(&lock);
	if (exec_exists(exec)) {
		was = exec->program;
		exec->dead = true;
		live--;
	}
	pthread_mutex_unlock(&lock);
	if (!was)
		return DRIVER_INVALID_VALUE;
	program_put(was);
	return DRIVER_SUCCESS;
}

struct launch {
	struct graph_exec *exec;
	struct program *program;
	uint64_t number;
	int device;
};

/* Has all that it comes after run? */
static bool is_ready(const struct graph_node *node, const bool *ran)
{
	for (size_t i = 0; i < node->nafter; i++)
		if (!ran[node->after[i]->place])
			return false;
	return true;
}

static struct graph_node *choose(const struct graph *graph, const bool *ran,
				 unsigned *seed)
{
	struct graph_node *chosen = NULL;
	int n = 0;

	for (struct graph_node *k = graph->first; k; k = k->next)
		if (!ran[k->place] && is_ready(k, ran) &&
		    rand_r(seed) % ++n == 0)
			chosen = k;
	return chosen;
}

static int run_nodes(const struct graph *graph, unsigned seed)
{
	bool *ran = calloc(graph->n + 1, sizeof(*ran));
	struct graph_node *node;
	int error = DRIVER_SUCCESS;

	while (!error && (node = choose(graph, ran, &seed))) {
		void *arg = malloc(node->bytes);

		memcpy(arg, node->arg, node->bytes);
		error = node->fn(arg);
		ran[node->place] = true;
	}
	free(ran);
	return error;
}

static bool is_turn(struct graph_exec *exec, uint64_t number)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = exec->ran + 1 == number;
	pthread_mutex_unlock(&lock);
	return is;
}

static int run_launch(void *arg)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	struct launch *l = arg;
	int error;

	while (!is_turn(l->exec, l->number))
		nanosleep(&nap, NULL);
	error = run_nodes(&l->program->graph, (unsigned)l->number);
	pthread_mutex_lock(&lock);
	l->exec->ran++;
	pthread_mutex_unlock(&lock);
	program_put(l->program);
	free(l);
	return error;
}

int graph_launch(struct graph_exec *exec, struct driver_stream *s, int device)
{
	struct launch l = {.exec = exec, .device = device};
	int error = DRIVER_INVALID_VALUE;

	if (graph_state(s) != GRAPH_NONE)
		return graph_spoil(s);
	pthread_mutex_lock(&lock);
	if (exec_exists(exec)) {
		l.program = exec->program;
		l.program->refs++;
		l.number = ++exec->launched;
		error = DRIVER_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	if (!error)
		error = driver_push_new(s, device, run_launch, &l, sizeof(l));
	if (error && l.program) {
		pthread_mutex_lock(&lock);
		exec->launched--;
		pthread_mutex_unlock(&lock);
		program_put(l.program);
	}
	return error;
}

/* ---- for tests ---- */

void graph_test(struct driver_stream *stream)
{
	static struct driver_stream *captured;
	struct graph *graph = NULL;

	if (stream) {
		captured = stream;
		graph_begin(captured, DRIVER_GLOBAL);
	} else if (captured && !graph_end(captured, &graph)) {
		graph_destroy(graph);
	}
}
