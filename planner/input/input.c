/* SPDX-License-Identifier: BSD-3-Clause */
/* Values out of JSON files, and complaints that name file, place and value. */
#include "planner/input/input.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void input_complain(const char *format, ...)
{
	va_list list;

	fputs("dicomm-plan: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
}

bool input_open(struct input *in, const char *file)
{
	json_error_t error;

	*in = (struct input){.file = file};
	in->root = json_load_file(file, JSON_REJECT_DUPLICATES, &error);
	if (!in->root && error.line > 0)
		input_complain("%s: line %d: %s", file, error.line, error.text);
	else if (!in->root)
		input_complain("%s", error.text);
	else if (!json_is_object(in->root))
		input_wrong(in, "the file", in->root, "an object");
	else
		return true;
	json_decref(in->root);
	in->root = NULL;
	in->bad = true;
	return false;
}

void input_close(struct input *in)
{
	json_decref(in->root);
	in->root = NULL;
}

void input_join(char path[INPUT_PATH], const char *at, const char *key)
{
	snprintf(path, INPUT_PATH, "%s%s%s", at ? at : "", at && *at ? "." : "",
		 key);
}

void input_wrong(struct input *in, const char *path, const json_t *value,
		 const char *format, ...)
{
	char wanted[1024], *text = NULL;
	va_list list;

	if (in->bad)
		return;
	in->bad = true;
	va_start(list, format);
	vsnprintf(wanted, sizeof(wanted), format, list);
	va_end(list);
	if (value)
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	if (text && strlen(text) > 60)
		strcpy(text + 57, "...");
	input_complain("%s: %s: %s: wanted %s", in->file, path,
		       !value ? "missing"
		       : text ? text
			      : "?",
		       wanted);
	free(text);
}

double input_number(struct input *in, const json_t *object, const char *at,
		    const char *key, double low, double high, double fallback)
{
	const json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];
	double x;

	if (!v && !isnan(fallback))
		return fallback;
	x = json_is_number(v) ? json_number_value(v) : NAN;
	if (x >= low && x <= high)
		return x;
	input_join(path, at, key);
	input_wrong(in, path, v, "a number from %g to %g", low, high);
	return isnan(fallback) ? low : fallback;
}

long input_integer(struct input *in, const json_t *object, const char *at,
		   const char *key, long low, long high, long fallback)
{
	const json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];

	if (!v && fallback >= 0)
		return fallback;
	if (json_is_integer(v) && json_integer_value(v) >= low &&
	    json_integer_value(v) <= high)
		return (long)json_integer_value(v);
	input_join(path, at, key);
	input_wrong(in, path, v, "a whole number from %ld to %ld", low, high);
	return fallback < 0 ? low : fallback;
}

bool input_bool(struct input *in, const json_t *object, const char *at,
		const char *key, bool fallback)
{
	const json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];

	if (!v)
		return fallback;
	if (json_is_boolean(v))
		return json_is_true(v);
	input_join(path, at, key);
	input_wrong(in, path, v, "true or false");
	return fallback;
}

const char *input_text(struct input *in, const json_t *object, const char *at,
		       const char *key, const char *fallback)
{
	const json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];

	if (!v && fallback)
		return fallback;
	if (json_is_string(v))
		return json_string_value(v);
	input_join(path, at, key);
	input_wrong(in, path, v, "a string");
	return fallback ? fallback : "";
}

json_t *input_array(struct input *in, const json_t *object, const char *at,
		    const char *key)
{
	json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];

	if (json_is_array(v) && json_array_size(v) > 0)
		return v;
	input_join(path, at, key);
	input_wrong(in, path, v, "an array that is not empty");
	return NULL;
}

json_t *input_object(struct input *in, const json_t *object, const char *at,
		     const char *key)
{
	json_t *v = json_object_get(object, key);
	char path[INPUT_PATH];

	if (json_is_object(v))
		return v;
	input_join(path, at, key);
	input_wrong(in, path, v, "an object");
	return NULL;
}

void input_keys(struct input *in, const json_t *object, const char *at,
		const char *const *known)
{
	char path[INPUT_PATH], text[400] = "";
	const char *key;
	json_t *value;

	for (size_t k = 0; known[k]; k++) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%s%s", k ? ", " : "",
			 known[k]);
	}
	json_object_foreach((json_t *)object, key, value)
	{
		bool found = false;

		for (size_t k = 0; known[k]; k++)
			found |= !strcmp(key, known[k]);
		input_join(path, at, key);
		if (!found)
			input_wrong(in, path, value, "no such key, but: %s",
				    text);
	}
}
