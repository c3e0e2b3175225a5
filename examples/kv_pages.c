/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caches of keys and values move from the ranks that have computed them
 * (prefill) to those that go on with them (decode). Both keep them in pages,
 * but of unlike sizes, and both divide the heads, but by unlike degrees:
 *
 *     prefill rank 0 of 4     heads 0, 1     pages of 16 tokens
 *     decode  rank 0 of 2     heads 0 to 3   pages of 64 tokens
 *
 * A page has, of one layer, the keys of its tokens head by head, then the
 * values. Each side has page tables of its own: where in its pool the pages of
 * a sequence are.
 *
 * It moves them in three ways, checks every byte, and prints how long each
 * took: by one plan of a redistribution, in which a page is a box of the tensor
 * tokens x heads x width; by puts straight to their places, and a signal when
 * all are there; and by a loop of sends and receives.
 *
 *     cc -o kv_pages kv_pages.c $(pkg-config --cflags --libs dicomm)
 *     mpirun -n 6 ./kv_pages
 *     DICOMM_DEVICE=cuda:0 mpirun -n 3 ./kv_pages --prefill 2 --to-page 128
 *
 * Ranks may be on unlike devices. With more ranks than heads, several have the
 * same head.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dicomm.h>

#define READY 0        /* signal: all of a prefill rank's puts are there */
#define NOTHING 0xffff /* what a pool has where no page was written */

/* A side: the ranks from `first` on, its pages, and how many tokens one has */
struct side {
	int first, ranks, page;
	int pages;   /* of the pool, in each layer */
	int **table; /* of each sequence */
};

/* What moves as it is: tokens of one head, together on both sides */
struct run {
	int from_rank, to_rank;
	size_t from, to, count; /* elements: where in the pools, and how many */
};

static int prefill_ranks = 4, from_page = 16, to_page = 64;
static int sequences = 3, tokens = 300, layers = 2, heads = 8, width = 64;
static int repeat = 3;
static const struct option {
	const char *name;
	int *value;
	const char *help;
} options[] = {
	{"--prefill", &prefill_ranks, "ranks of prefill; the others decode"},
	{"--from-page", &from_page, "tokens in a page of prefill"},
	{"--to-page", &to_page, "tokens in a page of decode"},
	{"--sequences", &sequences, "caches that move"},
	{"--tokens", &tokens, "of the longest sequence"},
	{"--layers", &layers, "of the model"},
	{"--heads", &heads, "of keys and values in a layer"},
	{"--width", &width, "elements of 16 bits of a head"},
	{"--repeat", &repeat, "times each way; the fastest counts"},
};
#define OPTIONS (sizeof(options) / sizeof(*options))

static dicomm_comm_t comm;
static int rank, ranks;
static struct side prefill, decode, *own;
static uint16_t *pool; /* in memory of the rank's device */
static size_t pool_bytes;

static void check(dicomm_result_t result, const char *what)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, dicomm_get_error_string(result),
		dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call)

static void *room(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	if (!p) {
		fprintf(stderr, "no room for %zu elements\n", n);
		exit(1);
	}
	return p;
}

/* ---- what is where ---- */

/* Unlike lengths */
static int length(int sequence)
{
	int n = tokens - sequence * (tokens / (sequences + 1));

	return n > 0 ? n : 1;
}

static int pages_of(const struct side *side, int sequence)
{
	return (length(sequence) + side->page - 1) / side->page;
}

/* The heads of a rank: lo to hi - 1 */
static void heads_of(const struct side *side, int of_rank, int *lo, int *hi)
{
	int64_t member = of_rank - side->first;

	*lo = (int)(member * heads / side->ranks);
	*hi = (int)((member + 1) * heads / side->ranks);
	if (*hi == *lo)
		++*hi;
}

/* The element of a rank's pool where a head of a token begins */
static size_t place(const struct side *side, int of_rank, int sequence,
		    int layer, int value, int head, int token)
{
	size_t page = (size_t)side->table[sequence][token / side->page];
	int lo, hi;

	heads_of(side, of_rank, &lo, &hi);
	page += (size_t)layer * (size_t)side->pages;
	page = page * 2 + (size_t)value;
	page = page * (size_t)(hi - lo) + (size_t)(head - lo);
	return (page * (size_t)side->page + (size_t)(token % side->page)) *
	       (size_t)width;
}

/* The first rank of prefill that has a head, or of several the next one for
 * each rank of decode */
static int holder(int head, int to_rank)
{
	int found[2] = {-1, -1}, lo, hi;

	for (int r = prefill.first; r < prefill.first + prefill.ranks; r++) {
		heads_of(&prefill, r, &lo, &hi);
		if (head < lo || head >= hi)
			continue;
		if (found[0] < 0)
			found[0] = r;
		found[1] = r;
	}
	return found[0] + (to_rank - decode.first) % (found[1] - found[0] + 1);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Runs of one head, between the ends of pages of either side */
static void runs_of_head(int to_rank, int sequence, int layer, int value,
			 int head, void (*act)(const struct run *))
{
	struct run run = {.from_rank = holder(head, to_rank),
			  .to_rank = to_rank};
	int end;

	for (int t = 0; t < length(sequence); t = end) {
		end = least((t / from_page + 1) * from_page,
			    (t / to_page + 1) * to_page);
		end = least(end, length(sequence));
		run.from = place(&prefill, run.from_rank, sequence, layer,
				 value, head, t);
		run.to = place(&decode, to_rank, sequence, layer, value, head,
			       t);
		run.count = (size_t)(end - t) * (size_t)width;
		if (rank == run.from_rank || rank == run.to_rank)
			act(&run);
	}
}

/* All runs of this rank, in one order on all ranks */
static void for_each_run(void (*act)(const struct run *))
{
	int lo, hi;

	for (int s = 0; s < sequences; s++)
		for (int i = 0; i < layers * 2; i++)
			for (int r = decode.first;
			     r < decode.first + decode.ranks; r++) {
				heads_of(&decode, r, &lo, &hi);
				for (int h = lo; h < hi; h++)
					runs_of_head(r, s, i / 2, i % 2, h,
						     act);
			}
}

/* A pool of a quarter more pages than it needs, used in any order. In a
 * service, the decode ranks send their table with the request. */
static void make_side(struct side *side, int first, int n, int page)
{
	int needed = 0, used = 0, *order;
	unsigned seed = (unsigned)page;

	*side = (struct side){.first = first, .ranks = n, .page = page};
	side->table = room((size_t)sequences, sizeof(*side->table));
	for (int s = 0; s < sequences; s++)
		needed += pages_of(side, s);
	side->pages = needed + needed / 4 + 1;
	order = room((size_t)side->pages, sizeof(*order));
	for (int i = 0; i < side->pages; i++) {
		int j;

		seed = seed * 1103515245u + 12345u;
		j = (int)((seed >> 8) % (unsigned)(i + 1));
		order[i] = order[j];
		order[j] = i;
	}
	for (int s = 0; s < sequences; s++) {
		side->table[s] = room((size_t)pages_of(side, s), sizeof(int));
		for (int p = 0; p < pages_of(side, s); p++)
			side->table[s][p] = order[used++];
	}
	free(order);
}

static void free_side(struct side *side)
{
	for (int s = 0; s < sequences; s++)
		free(side->table[s]);
	free(side->table);
}

/* ---- what is in it ---- */

/* Stands for what a model computes; never NOTHING. */
static uint16_t element(int sequence, int layer, int value, int head, int token,
			int i)
{
	uint32_t x = (uint32_t)((sequence * layers + layer) * 2 + value);

	x = (x * (uint32_t)heads + (uint32_t)head) * (uint32_t)tokens;
	x = (x + (uint32_t)token) * (uint32_t)width + (uint32_t)i;
	return (uint16_t)(x * 2654435761u % NOTHING);
}

/* What is to be in the pool of this rank */
static void fill(uint16_t *host)
{
	int lo, hi;

	memset(host, 0xff, pool_bytes);
	heads_of(own, rank, &lo, &hi);
	for (int s = 0; s < sequences; s++)
		for (int l = 0; l < layers * 2; l++)
			for (int h = lo; h < hi; h++)
				for (int t = 0; t < length(s); t++) {
					uint16_t *at =
						host + place(own, rank, s,
							     l / 2, l % 2, h,
							     t);

					for (int i = 0; i < width; i++)
						at[i] = element(s, l / 2, l % 2,
								h, t, i);
				}
}

/* Prefill has computed; the pools of decode are empty. */
static void prepare(uint16_t *host)
{
	if (own == &prefill)
		fill(host);
	else
		memset(host, 0xff, pool_bytes);
	CHECK(dicomm_comm_memcpy(comm, pool, host, pool_bytes, NULL));
}

/* How many elements are wrong, pages that are not in use included */
static long wrong(uint16_t *host, uint16_t *right)
{
	long n = 0;

	if (own == &prefill)
		return 0;
	fill(right);
	CHECK(dicomm_comm_memcpy(comm, host, pool, pool_bytes, NULL));
	for (size_t i = 0; i < pool_bytes / sizeof(*host); i++)
		n += host[i] != right[i];
	return n;
}

/* ---- by a plan ---- */

static dicomm_redistribute_t plan;
static const void **sources;
static void **targets;

/* Each page of a sequence is a box. */
static dicomm_box_t *boxes_of(int sequence, int layer, int value)
{
	dicomm_box_t *boxes =
		room((size_t)pages_of(own, sequence), sizeof(*boxes));
	int lo, hi;

	heads_of(own, rank, &lo, &hi);
	for (int p = 0; p < pages_of(own, sequence); p++) {
		dicomm_box_t *b = &boxes[p];

		b->rank = rank;
		b->lo[0] = p * own->page;
		b->hi[0] = least((p + 1) * own->page, length(sequence));
		b->lo[1] = lo;
		b->hi[1] = hi;
		b->hi[2] = width;
		b->offset = (int64_t)place(own, rank, sequence, layer, value,
					   lo, p * own->page);
		b->stride[0] = width;
		b->stride[1] = (int64_t)own->page * width;
		b->stride[2] = 1;
	}
	return boxes;
}

static void make_plan(void)
{
	size_t n = (size_t)(sequences * layers * 2);
	dicomm_tensor_t *tensors = room(n, sizeof(*tensors));
	dicomm_box_t **boxes = room(n, sizeof(*boxes));

	sources = room(n, sizeof(*sources));
	targets = room(n, sizeof(*targets));
	for (size_t i = 0; i < n; i++) {
		dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
		int s = (int)i / (layers * 2), l = (int)i / 2 % layers;

		boxes[i] = boxes_of(s, l, (int)i % 2);
		t.type = DICOMM_BYTES2;
		t.axes = 3;
		t.shape[0] = length(s);
		t.shape[1] = heads;
		t.shape[2] = width;
		t.source = t.target = boxes[i];
		if (own == &prefill)
			t.sources = (size_t)pages_of(own, s);
		else
			t.targets = (size_t)pages_of(own, s);
		tensors[i] = t;
		sources[i] = targets[i] = pool;
	}
	CHECK(dicomm_redistribute_plan_own(&plan, tensors, n, NULL, comm));
	for (size_t i = 0; i < n; i++)
		free(boxes[i]);
	free(boxes);
	free(tensors);
}

static void by_plan(void)
{
	CHECK(dicomm_redistribute_run(plan, sources, targets, NULL));
}

/* ---- by puts ---- */

static dicomm_window_t window;
static char *talks; /* to which ranks this one sends, or from which it gets */

static void note_peer(const struct run *run)
{
	talks[rank == run->from_rank ? run->to_rank : run->from_rank] = 1;
}

static void put(const struct run *run)
{
	if (rank != run->from_rank)
		return;
	CHECK(dicomm_put_signal(pool + run->from, run->count, DICOMM_BYTES2,
				run->to_rank, window, run->to * sizeof(*pool),
				DICOMM_NO_SIGNAL, 0, 0, comm, NULL));
}

/* A signal counts when all earlier puts of its rank are there. */
static void by_puts(void)
{
	for_each_run(put);
	for (int r = 0; r < ranks; r++) {
		dicomm_wait_signal_desc_t ready = {
			.count = 1, .peer = r, .signal = READY};

		if (talks[r] && own == &prefill)
			CHECK(dicomm_signal(r, READY, 0, 0, comm, NULL));
		else if (talks[r])
			CHECK(dicomm_wait_signal(1, &ready, comm, NULL));
	}
}

/* ---- by sends ---- */

static void send_or_receive(const struct run *run)
{
	if (rank == run->from_rank)
		CHECK(dicomm_send(pool + run->from, run->count, DICOMM_BYTES2,
				  run->to_rank, comm, NULL));
	else
		CHECK(dicomm_recv(pool + run->to, run->count, DICOMM_BYTES2,
				  run->from_rank, comm, NULL));
}

/* All ranks have one order, so none waits for another in a circle. */
static void by_sends(void)
{
	for_each_run(send_or_receive);
}

/* ---- all of them ---- */

static double seconds(void)
{
	struct timespec t;

	timespec_get(&t, TIME_UTC);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void meet(void)
{
	CHECK(dicomm_barrier(comm, NULL));
	CHECK(dicomm_comm_stream_synchronize(comm, NULL));
}

static long try(const char *name, void (*way)(void))
{
	uint16_t *host = room(pool_bytes, 2), *right = host + pool_bytes / 2;
	double fastest = 1e9;
	long bad = 0;

	for (int i = 0; i < repeat; i++) {
		double began, took;

		prepare(host);
		meet();
		began = seconds();
		way();
		CHECK(dicomm_comm_stream_synchronize(comm, NULL));
		meet();
		took = seconds() - began;
		fastest = took < fastest ? took : fastest;
		bad += wrong(host, right);
	}
	free(host);
	if (rank == 0)
		printf("%-6s %10.3f ms\n", name, fastest * 1e3);
	if (own == &decode)
		printf("rank %d: by %s, %ld elements wrong\n", rank, name, bad);
	return bad;
}

static size_t runs, elements;

static void count(const struct run *run)
{
	if (rank != run->to_rank)
		return;
	runs++;
	elements += run->count;
}

static void say(void)
{
	dicomm_redistribute_info_t info = {.size = sizeof(info)};

	CHECK(dicomm_redistribute_info(plan, &info));
	if (rank == 0)
		printf("%d ranks with pages of %d tokens to %d with pages of "
		       "%d: %d caches of %d layers, %d heads, at most %d "
		       "tokens\n",
		       prefill.ranks, from_page, decode.ranks, to_page,
		       sequences, layers, heads, tokens);
	if (own == &prefill)
		return;
	for_each_run(count);
	printf("rank %d: gets %zu bytes, by the plan in %llu messages, else in "
	       "%zu\n",
	       rank, elements * sizeof(*pool),
	       (unsigned long long)info.messages_received, runs);
}

static int usage(const char *program)
{
	fprintf(stderr, "usage: %s [OPTION NUMBER]...\n", program);
	for (size_t i = 0; i < OPTIONS; i++)
		fprintf(stderr, "  %-12s %s (%d)\n", options[i].name,
			options[i].help, *options[i].value);
	return 2;
}

static int read_options(int argc, char **argv)
{
	for (int a = 1; a < argc; a += 2) {
		const char *text = a + 1 < argc ? argv[a + 1] : "";
		size_t i = 0;
		char *end;
		long n;

		while (i < OPTIONS && strcmp(options[i].name, argv[a]))
			i++;
		if (i == OPTIONS) {
			fprintf(stderr, "there is no option %s\n", argv[a]);
			return usage(argv[0]);
		}
		n = strtol(text, &end, 10);
		if (!*text || *end || n < 1 || n > 1 << 20) {
			fprintf(stderr,
				"%s: \"%s\" is no number from 1 to 1048576\n",
				argv[a], text);
			return 2;
		}
		*options[i].value = (int)n;
	}
	return 0;
}

/* Pages and tensors are counted in ints. */
static int check_sizes(void)
{
	int64_t n = sequences, longest = tokens;

	if (n * (longest + 2) * 2 > INT32_MAX || n * layers * 2 > INT32_MAX) {
		fprintf(stderr,
			"--sequences %d of --tokens %d in --layers %d: more "
			"than 2^31 pages or tensors\n",
			sequences, tokens, layers);
		return 2;
	}
	if ((double)n * ((double)tokens + from_page + to_page) * layers *
		    heads * width >
	    1e12) {
		fprintf(stderr,
			"--sequences %d of --tokens %d: more than 1e12 "
			"elements\n",
			sequences, tokens);
		return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int refused = read_options(argc, argv), lo, hi;
	long bad;

	if (!refused)
		refused = check_sizes();
	if (refused)
		return refused;
	CHECK(dicomm_comm_init_env(&comm));
	CHECK(dicomm_comm_user_rank(comm, &rank));
	CHECK(dicomm_comm_count(comm, &ranks));
	if (ranks <= prefill_ranks) {
		fprintf(stderr,
			"--prefill %d: of %d ranks, none is left to decode\n",
			prefill_ranks, ranks);
		return 2;
	}
	make_side(&prefill, 0, prefill_ranks, from_page);
	make_side(&decode, prefill_ranks, ranks - prefill_ranks, to_page);
	own = rank < prefill_ranks ? &prefill : &decode;
	heads_of(own, rank, &lo, &hi);
	pool_bytes = (size_t)layers * (size_t)own->pages * 2 *
		     (size_t)(hi - lo) * (size_t)own->page * (size_t)width *
		     sizeof(*pool);
	CHECK(dicomm_comm_mem_alloc(comm, (void **)&pool, pool_bytes));
	talks = room((size_t)ranks, 1);
	for_each_run(note_peer);
	make_plan();
	/* Nobody puts into prefill: its part of the window is empty. */
	CHECK(dicomm_comm_window_register(comm, own == &decode ? pool : NULL,
					  own == &decode ? pool_bytes : 0,
					  &window, DICOMM_WINDOW_DEFAULT));
	say();
	bad = try("plan", by_plan) + try("puts", by_puts) +
	      try("sends", by_sends);
	CHECK(dicomm_comm_window_deregister(comm, window));
	CHECK(dicomm_redistribute_free(plan));
	CHECK(dicomm_mem_free(pool));
	CHECK(dicomm_comm_destroy(comm));
	free(talks);
	free(sources);
	free(targets);
	free_side(&prefill);
	free_side(&decode);
	return bad != 0;
}
