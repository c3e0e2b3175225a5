/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/tally.h"

#include <string.h>

static const char *const columns[] = {
	[TALLY_HANG] = "hangs",      [TALLY_WRONG] = "wrong",
	[TALLY_UNNAMED] = "unnamed", [TALLY_CRASH] = "crashes",
	[TALLY_SHRINK] = "shrinks",  [TALLY_SPLIT] = "splits",
	[TALLY_LEFT] = "left",       [TALLY_OTHER] = "other",
};

const char *tally_name(enum tally_fault fault)
{
	return columns[fault];
}

void tally_event(struct tally *t, enum event_kind kind)
{
	t->latest = kind;
	t->row[kind].events++;
}

void tally_fault(struct tally *t, enum tally_fault fault)
{
	t->row[t->latest].faults[fault]++;
}

void tally_known(struct tally *t, double seconds)
{
	struct tally_row *row = &t->row[t->latest];

	row->known++;
	row->sum_s += seconds;
	if (seconds > row->longest_s)
		row->longest_s = seconds;
}

/* As tests/support/job.c, trial.c and residue.c word them; what none of them
 * fits is a fault nevertheless. */
enum tally_fault tally_read(const char *text)
{
	static const struct {
		const char *words;
		enum tally_fault fault;
	} all[] = {
		{" buffer, byte ", TALLY_WRONG},
		{"ended by signal", TALLY_CRASH},
		{"ended with status", TALLY_CRASH},
		{"did not end within", TALLY_HANG},
		{"descriptors instead of", TALLY_LEFT},
		{"bytes of memory", TALLY_LEFT},
		{"memory was leaked", TALLY_LEFT},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (strstr(text, all[i].words))
			return all[i].fault;
	return TALLY_OTHER;
}

unsigned tally_events(const struct tally *t)
{
	unsigned n = 0;

	for (int k = 0; k < EVENT_KINDS; k++)
		n += t->row[k].events;
	return n;
}

unsigned tally_faults(const struct tally *t)
{
	unsigned n = 0;

	for (int k = 0; k < EVENT_KINDS; k++)
		for (int f = 0; f < TALLY_FAULTS; f++)
			n += t->row[k].faults[f];
	return n;
}

static void print_row(const struct tally_row *row, const char *name, FILE *to)
{
	fprintf(to, "%-20s %6u", name, row->events);
	for (int f = 0; f < TALLY_FAULTS; f++)
		fprintf(to, " %7u", row->faults[f]);
	if (row->known)
		fprintf(to, " %9.3f %9.3f\n", row->sum_s / row->known,
			row->longest_s);
	else
		fprintf(to, " %9s %9s\n", "-", "-");
}

static void add(struct tally_row *sum, const struct tally_row *row)
{
	sum->events += row->events;
	for (int f = 0; f < TALLY_FAULTS; f++)
		sum->faults[f] += row->faults[f];
}

void tally_print(const struct tally *t, FILE *to)
{
	struct tally_row sum = {0};

	fprintf(to, "%-20s %6s", "event", "events");
	for (int f = 0; f < TALLY_FAULTS; f++)
		fprintf(to, " %7s", columns[f]);
	fprintf(to, " %9s %9s\n", "mean s", "longest s");
	for (int k = 0; k < EVENT_KINDS; k++) {
		print_row(&t->row[k], event_name((enum event_kind)k), to);
		add(&sum, &t->row[k]);
	}
	print_row(&sum, "all", to);
	fprintf(to,
		"%u rounds, %u shrinks (slowest %.3f s), %u growths, %lu calls "
		"of ranks, all verified\n"
		"at most %d descriptors and %ld KiB more than before, after "
		"destroy\n",
		t->rounds, t->shrinks, t->slowest_shrink_s, t->growths,
		t->calls, t->most_descriptors, t->most_grown / 1024);
	if (t->stops)
		fprintf(to,
			"%u of %u time-outs named the very rank that was "
			"stopped\n",
			t->stops_found, t->stops);
}
