/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dicomm-info --doctor: what on this machine gets in the way of ranks. Each
 * check is a row of a table: it reads, changes nothing and needs no rights.
 * What cannot be read is not known.
 */
#ifndef DICOMM_PERFTEST_DOCTOR_H
#define DICOMM_PERFTEST_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* OK also where a check does not apply; WARN: works, but slower than it could,
 * or not for all programs; BAD: ranks of such a job do not start or not meet.
 */
enum verdict { VERDICT_OK, VERDICT_UNKNOWN, VERDICT_WARN, VERDICT_BAD };

struct doctor;

struct check {
	const char *what; /* NULL ends the table */
	const char *wanted;
	const char *mend;
	void (*look)(struct doctor *d); /* tells at least once */
};

extern const struct check network_checks[], host_checks[], adapter_checks[];

struct doctor {
	const char *root; /* stands before each path of /proc, /sys, /dev */
	int ranks;        /* of the job for which there has to be room */
	json_t *findings; /* array, borrowed; NULL: they are printed */
	const struct check *check; /* the one that looks */
	enum verdict worst;
};

/* Looks at this machine. */
void doctor_run(struct doctor *d);

/* Says what the current check has seen. */
void doctor_tell(struct doctor *d, enum verdict verdict, const char *format,
		 ...) __attribute__((format(printf, 3, 4)));

#define DOCTOR_LINE 512

/* Reads the first line of a file, without the white space around it. */
bool doctor_read(const struct doctor *d, char line[DOCTOR_LINE],
		 const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Finds the line of a file that contains `key`, and what is behind the key. */
bool doctor_read_key(const struct doctor *d, char rest[DOCTOR_LINE],
		     const char *file, const char *key);
/* Calls a function, if not NULL, for each path that matches a pattern of the
 * shell, and returns their number. */
typedef void doctor_each_fn(struct doctor *d, const char *path, void *ctx);
size_t doctor_each(struct doctor *d, const char *pattern, doctor_each_fn *fn,
		   void *ctx);
/* Returns the value of a parameter of the library; "" if it has none. */
const char *doctor_param(const char *name);
/* Returns how many of the job's ranks may be on this host: one for each
 * processor. */
int doctor_ranks_here(struct doctor *d);

#endif
