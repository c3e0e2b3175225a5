/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks work, and are disturbed: killed, stopped, aborted, cut off. After each
 * event the survivors must know who it was and go on without. README.md has the
 * options.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/storms/board.h"
#include "tests/storms/round.h"
#include "tests/support/job.h"
#include "tests/support/storm.h"

struct board *board;

static struct options {
	unsigned events, seconds, seed;
	int least, most; /* ranks */
	const char *transport, *islands;
} options = {.events = 100, .seconds = 600, .least = 2, .most = BOARD_RANKS};

static const char usage[] =
	"usage: storm [--events N] [--seconds S] [--seed N] [--ranks N|N-M]\n"
	"             [--transport LIST] [--islands LIBRARY]\n"
	"  --events     so many disturbances (100)\n"
	"  --seconds    at most so long, and the event under way (600)\n"
	"  --seed       of the first round; the next ones count on (the time)\n"
	"  --ranks      2 to 8 processes\n"
	"  --transport  as DICOMM_TRANSPORTS, which counts without it\n"
	"  --islands    two ranks each are an island of a vendor's library, "
	"for "
	"which\n"
	"               this libnccl.so.2 of ours stands; a transport between "
	"hosts "
	"is needed\n";

static _Noreturn void refuse(const char *option, const char *value)
{
	fprintf(stderr, "storm: --%s %s\n%s", option, value, usage);
	exit(2);
}

static unsigned number(const char *option, const char *text, unsigned most)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || value > most)
		refuse(option, text);
	return (unsigned)value;
}

static void take_ranks(const char *text)
{
	char extra;
	int n = sscanf(text, "%d-%d%c", &options.least, &options.most, &extra);

	if (n == 1 && !strchr(text, '-'))
		options.most = options.least;
	else if (n != 2)
		refuse("ranks", text);
	if (options.least < 2 || options.most > BOARD_RANKS ||
	    options.least > options.most)
		refuse("ranks", text);
}

static void take_options(int argc, char **argv)
{
	static const struct option all[] = {
		{"events", required_argument, NULL, 'e'},
		{"seconds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'r'},
		{"ranks", required_argument, NULL, 'n'},
		{"transport", required_argument, NULL, 't'},
		{"islands", required_argument, NULL, 'i'},
		{NULL, 0, NULL, 0}};
	int c;

	options.seed = (unsigned)(job_seconds() * 1e3);
	while ((c = getopt_long(argc, argv, "", all, NULL)) != -1) {
		if (c == 'e')
			options.events = number("events", optarg, 1000000);
		else if (c == 's')
			options.seconds = number("seconds", optarg, 1000000);
		else if (c == 'r')
			options.seed = number("seed", optarg, UINT_MAX);
		else if (c == 'n')
			take_ranks(optarg);
		else if (c == 't')
			options.transport = optarg;
		else if (c == 'i')
			options.islands = optarg;
		else
			refuse("", "");
	}
	if (optind < argc)
		refuse("", argv[optind]);
}

/* All calls that can go by islands do, and the longer ones in parts. */
static void set_islands(void)
{
	char library[4096];

	if (access(options.islands, R_OK))
		refuse("islands", options.islands);
	snprintf(library, sizeof(library), "own:%s", options.islands);
	setenv("DICOMM_ISLAND", "nccl", 1);
	setenv("DICOMM_ISLAND_LIBRARY", library, 1);
	setenv("DICOMM_ISLAND_BYTES", "0", 1);
	setenv("DICOMM_ISLAND_PART_BYTES", "128K", 0);
}

static void set_environment(void)
{
	const char *list;

	if (options.islands)
		set_islands();

	if (options.transport)
		setenv("DICOMM_TRANSPORTS", options.transport, 1);
	list = getenv("DICOMM_TRANSPORTS");
	/* RDMA devices are not on it. */
	if (!list || !strstr(list, "verbs"))
		setenv("DICOMM_SOCKET_IFNAME", "lo", 0);
}

static struct round draw_round(unsigned number, double end)
{
	unsigned seed = options.seed + number, state = seed;
	unsigned some = (unsigned)(options.most - options.least) + 1;
	int ranks = options.least + (int)storm_random(&state, some);
	struct round r = round_draw(seed, ranks);

	r.ucx = job_uses("ucx");
	r.events = options.events;
	r.end = end;
	return r;
}

/* glibc keeps what a thread has freed for that thread, and counts it as used:
 * without that, mallinfo2() tells what is left. It is read when a program
 * starts. */
static void count_exactly(char **argv)
{
	if (getenv("GLIBC_TUNABLES") ||
	    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1))
		return;
	execv("/proc/self/exe", argv);
	perror("storm: /proc/self/exe");
}

int main(int argc, char **argv)
{
	struct tally *t;
	double end;

	count_exactly(argv);
	take_options(argc, argv);
	set_environment();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("storm: mmap");
		return 2;
	}
	t = &board->tally;
	printf("seed %u, transports %s\n", options.seed,
	       getenv("DICOMM_TRANSPORTS") ? getenv("DICOMM_TRANSPORTS")
					   : "of choice");
	end = job_seconds() + options.seconds;
	while (tally_events(t) < options.events && job_seconds() < end) {
		struct round r = draw_round(t->rounds, end);

		round_run(&r);
	}
	tally_print(t, stdout);
	return tally_faults(t) != 0;
}
