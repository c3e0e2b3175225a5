/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A JSON file whose values are asked for one by one.
 *
 * The first value of no use is reported on stderr with the file, its place in
 * it and what it is, and marks the input bad; what is asked for after that
 * gives the fallback in silence. So a reader asks for all that it needs and
 * looks once at the end.
 */
#ifndef DICOMM_PLANNER_INPUT_INPUT_H
#define DICOMM_PLANNER_INPUT_INPUT_H

#include <jansson.h>
#include <stdbool.h>

#define INPUT_PATH 256

struct input {
	const char *file;
	json_t *root; /* owned; an object */
	bool bad;
};

/* False after a message: not there, no JSON, no object. */
bool input_open(struct input *in, const char *file);
void input_close(struct input *in);

/* Report that a value is of no use; value NULL is a missing one. */
void input_wrong(struct input *in, const char *path, const json_t *value,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* "at.key" or, without at, "key". */
void input_join(char path[INPUT_PATH], const char *at, const char *key);

/* The member `key` of an object that lies at `at`. A fallback of NAN (or a
 * negative one of integers, NULL of texts) makes it obligatory. */
double input_number(struct input *in, const json_t *object, const char *at,
		    const char *key, double low, double high, double fallback);
long input_integer(struct input *in, const json_t *object, const char *at,
		   const char *key, long low, long high, long fallback);
bool input_bool(struct input *in, const json_t *object, const char *at,
		const char *key, bool fallback);
/* Lives as long as the input. */
const char *input_text(struct input *in, const json_t *object, const char *at,
		       const char *key, const char *fallback);
/* NULL, reported, if it is not there or not an array (object). */
json_t *input_array(struct input *in, const json_t *object, const char *at,
		    const char *key);
json_t *input_object(struct input *in, const json_t *object, const char *at,
		     const char *key);
/* A misspelt key would be a default that nobody asked for: all keys are among
 * the known ones, which NULL ends. */
void input_keys(struct input *in, const json_t *object, const char *at,
		const char *const *known);

/* Beside what a file says: a value of the command line, an impossible wish. */
void input_complain(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

#endif
