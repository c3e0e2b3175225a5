/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a parameter is read: from the DICOMM_ variable, else from the NCCL
 * variable with the same meaning, else from a file, else the default.
 */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/config_file.h"
#include "src/base/fork.h"
#include "src/base/hash.h"
#include "src/base/log.h"

#define PREFIX "DICOMM_"
#define CHOICES 8

enum kind { KIND_STRING, KIND_INT, KIND_BYTES, KIND_BOOL };

static const char *const kind_names[] = {
	[KIND_STRING] = "string",
	[KIND_INT] = "int",
	[KIND_BYTES] = "bytes",
	[KIND_BOOL] = "bool",
};

enum flag {
	/* Read anew each time: a process that lives on (a notebook, a worker of
	 * Ray) may be another rank, of another job, next time. */
	LIVE = 1 << 0,
	SHARED = 1 << 1, /* all ranks of a communicator must agree */
	/* Ranks must also agree on whether it was set, because a default may
	 * give way. */
	CHOSEN = 1 << 2,
	/* Who sets it asks for protection: a bad value is refused, because the
	 * default would go without. */
	PROTECTS = 1 << 3,
	SECRET = 1 << 4, /* never printed */
	ID = 1 << 5,     /* may be a unique id, whose secret is never printed */
	NCCL = 1 << 6,   /* NCCL has a variable of this name and meaning */
	EMPTY = 1 << 7,  /* to be empty is a value of its own */
};

struct row {
	const char *name;
	const char *nccl; /* counts if the DICOMM_ variable is not set */
	enum kind kind;
	const char *value; /* default; for a number, "auto" or "" means -1 */
	const char *help;  /* also names the NCCL variable */
	int64_t min, max;  /* for a number */
	const char *choices[CHOICES]; /* for a string; none: any text */
	/* Refuses further values. Returns the description of a valid value, or
	 * NULL if this one is valid. */
	const char *(*check)(const char *text, int64_t number);
	unsigned flags;
};

static const char *check_power_of_two(const char *text, int64_t number)
{
	(void)text;
	return number & (number - 1) ? "a power of two" : NULL;
}

static const char *check_pages(const char *text, int64_t number)
{
	(void)text;
	return number % 4096 ? "a multiple of 4K" : NULL;
}

static const char *check_absolute(const char *text, int64_t number)
{
	(void)number;
	return *text == '/' ? NULL : "a path that begins with /, or nothing";
}

static const char *check_silent(const char *text, int64_t number)
{
	(void)text;
	/* A busy host may take that long to answer. */
	return number && number < 1000 ? "0, or at least 1000" : NULL;
}

static const char *check_port_range(const char *text, int64_t number)
{
	unsigned first, last;
	int end = 0;

	(void)number;
	/* Only digits and one dash: %u would also accept a sign or a space. */
	if (strspn(text, "0123456789-") == strlen(text) && text[0] != '-' &&
	    sscanf(text, "%5u-%5u%n", &first, &last, &end) == 2 && !text[end] &&
	    strchr(text, '-') == strrchr(text, '-') && first >= 1 &&
	    first <= last && last <= 65535)
		return NULL;
	return "two ports, first-last";
}

#define STRING(text) .kind = KIND_STRING, .value = text
#define CHOICE(text, ...) STRING(text), .choices = {__VA_ARGS__}
#define BOOL(text) .kind = KIND_BOOL, .value = text
#define INT(text, least, most) \
	.kind = KIND_INT, .value = text, .min = least, .max = most
#define BYTES(text, least, most) \
	.kind = KIND_BYTES, .value = text, .min = least, .max = most
#define ROW(key, type, bits, text, ...)                                     \
	{.name = PREFIX #key,                                               \
	 .nccl = NCCL & (bits) ? "NCCL_" #key : NULL,                       \
	 .help = NCCL & (bits) ? text " (also read: NCCL_" #key ")" : text, \
	 .flags = bits,                                                     \
	 type,                                                              \
	 __VA_ARGS__},

static const struct row rows[] = {
#include "src/base/config_rows.h"
};

/* A value that a row has, or has had. Nothing changes it once it is made, and
 * it stays, because callers keep its text. */
struct value {
	/* A string as given, or as the table spells the choice; a number in
	 * canonical form. */
	const char *text;
	char digits[24]; /* text of a number */
	int64_t number;
	const char *variable; /* the variable that set it; NULL: default */
	const struct config_line *line; /* where; NULL: in the environment */
	char origin[128];
	const char *shown;   /* the text with secrets hidden */
	char *given;         /* text of the variable */
	const char *wanted;  /* instead of it; NULL: it is taken */
	struct value *other; /* that the row has had; under FORK_CONFIG */
};

static struct value values[CONFIG_KEYS]; /* at first use */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool reported;

/* As strtoll(), but without leading space, and for sizes with a suffix K, M, G
 * or T. */
static bool parse_number(const char *text, bool bytes, int64_t *number)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	long long n;
	char *end;
	int shift = 0;

	if (!isdigit((unsigned char)text[0]) &&
	    !(text[0] == '-' && isdigit((unsigned char)text[1])))
		return false;
	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno)
		return false;
	if (bytes && *end) {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1])
			return false;
		shift = 10 * (int)(suffix - suffixes + 1);
		end++;
	}
	if (*end || n > INT64_MAX >> shift || n < 0 - (INT64_MAX >> shift))
		return false;
	*number = n * (1ll << shift);
	return true;
}

static bool parse_bool(const char *text, int64_t *number)
{
	static const char *const words[] = {"0",  "1",   "false", "true",
					    "no", "yes", "off",   "on"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (!strcasecmp(text, words[i])) {
			*number = (int64_t)(i & 1);
			return true;
		}
	}
	return false;
}

static const char *same_choice(const struct row *row, const char *text)
{
	for (int i = 0; i < CHOICES && row->choices[i]; i++)
		if (!strcasecmp(text, row->choices[i]))
			return row->choices[i];
	return NULL;
}

/* Returns the table's spelling of a choice, or NULL if there is no such
 * choice. Each spelling of on and off is one where these are choices. */
static const char *find_choice(const struct row *row, const char *text)
{
	const char *choice = same_choice(row, text);
	int64_t on;

	if (!choice && parse_bool(text, &on))
		choice = same_choice(row, on ? "on" : "off");
	return choice;
}

/* Writes the canonical text, so that equal settings have equal texts, however
 * they were written. */
static void print_number(const struct row *row, struct value *value)
{
	static const char suffixes[] = "\0KMGT";
	int64_t number = value->number;
	int s = 0;

	if (number == -1) {
		value->text = row->value;
		return;
	}
	while (row->kind == KIND_BYTES && number && number % 1024 == 0 &&
	       s < 4) {
		number /= 1024;
		s++;
	}
	snprintf(value->digits, sizeof(value->digits), "%lld%.1s",
		 (long long)number, suffixes + s);
	value->text = value->digits;
}

/* Returns a copy, because programs change their environment. Without memory it
 * returns the text itself: that is better than the default, which nobody asked
 * for. */
static const char *keep(const char *text)
{
	const char *copy = strdup(text);

	return copy ? copy : text;
}

#define HIDDEN "(hidden)"
/* A run of this many characters of the base64 alphabet is taken for a secret.
 * The secret of an id has 43; labels of host names are seldom that long. */
#define SECRET_RUN 32

static bool looks_secret(const char *text)
{
	size_t run = 0;

	for (; *text; text++) {
		run = isalnum((unsigned char)*text) || *text == '-' ||
				      *text == '_'
			      ? run + 1
			      : 0;
		if (run >= SECRET_RUN)
			return true;
	}
	return false;
}

/*
 * Returns the printable form of an id, which may be damaged. It shows host and
 * port, and hides what follows the last colon unless that is a port. Text
 * without a colon is a mistake of the user, who should see it, unless it is
 * long.
 */
static const char *show_id(const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
	char *shown;

	if (colon && digits <= 5 && !colon[1 + digits] && !looks_secret(text))
		return text;
	if (!colon)
		return looks_secret(text) ? HIDDEN : text;
	if (asprintf(&shown, "%.*s:" HIDDEN, (int)(colon - text), text) < 0)
		return HIDDEN;
	if (looks_secret(shown)) {
		free(shown);
		return HIDDEN;
	}
	return shown;
}

/* Fills in number and text. Returns NULL, or what is wanted instead of this
 * text. */
static const char *parse(const struct row *row, const char *text,
			 struct value *value)
{
	const char *choice = text;
	int64_t number = -1; /* of a default that is no number */

	if (row->kind == KIND_STRING) {
		if (*text && row->choices[0])
			choice = find_choice(row, text);
		if (!choice)
			return ""; /* the caller lists the choices */
	} else if (row->kind == KIND_BOOL) {
		if (!parse_bool(text, &number))
			return "0 or 1";
	} else if (isdigit((unsigned char)*row->value) ||
		   strcasecmp(text, row->value)) {
		if (!parse_number(text, row->kind == KIND_BYTES, &number))
			return row->kind == KIND_BYTES
				       ? "bytes, as 4096, 32K or 1M"
				       : "a whole number";
		if (number < row->min || number > row->max)
			return ""; /* the caller names the range */
	}
	if (*text && row->check && row->check(text, number))
		return row->check(text, number);
	value->number = number;
	if (row->kind != KIND_STRING)
		print_number(row, value);
	else
		value->text = choice == text ? keep(text) : choice;
	value->shown = value->text;
	if (*value->text && (row->flags & SECRET))
		value->shown = HIDDEN;
	else if (*value->text && (row->flags & ID))
		value->shown = show_id(value->text);
	return NULL;
}

/* An empty variable counts as not set, unless the row says otherwise. */
static const char *given(const struct row *row, const char *text)
{
	return text && (*text || (row->flags & EMPTY)) ? text : NULL;
}

static const char *variable(const struct row *row, const char *name)
{
	return name ? given(row, getenv(name)) : NULL;
}

/* What a row was given. text is NULL if that is nothing. */
struct setting {
	const char *name, *text;
	const struct config_line *line;
};

static struct setting setting_of(const struct row *row)
{
	struct setting s = {.name = row->name,
			    .text = variable(row, row->name)};

	if (s.text)
		return s;
	s.text = variable(row, row->nccl);
	if (s.text) {
		s.name = row->nccl;
		return s;
	}
	s.line = config_file_line(row->name);
	s.text = s.line ? given(row, s.line->text) : NULL;
	if (!s.text)
		s.line = NULL;
	return s;
}

static void load_value(const struct row *row, struct setting s,
		       struct value *value)
{
	const char *bad;

	strcpy(value->origin, "default");
	if (s.text) {
		value->wanted = parse(row, s.text, value);
		value->variable = s.name;
		value->line = s.line;
		value->given = strdup(s.text);
		if (!value->wanted) {
			snprintf(value->origin, sizeof(value->origin), "%s %s",
				 s.line ? "file" : "environment",
				 s.line ? s.line->path : s.name);
			return;
		}
	}
	bad = parse(row, row->value, value);
	assert(!bad);
	(void)bad;
}

static void load(void)
{
	config_files_read();
	for (int i = 0; i < CONFIG_KEYS; i++)
		load_value(&rows[i], setting_of(&rows[i]), &values[i]);
}

static void print_wanted(const struct row *row, const char *wanted, char *text,
			 size_t room)
{
	size_t len = 0;

	if (*wanted) {
		snprintf(text, room, "%s", wanted);
	} else if (row->kind == KIND_STRING) {
		*text = '\0';
		for (int i = 0; i < CHOICES && row->choices[i]; i++) {
			len += (size_t)snprintf(text + len, room - len, "%s%s",
						i ? ", " : "one of ",
						row->choices[i]);
			assert(len < room);
		}
	} else if (row->max >= INT32_MAX) {
		snprintf(text, room, "at least %lld", (long long)row->min);
	} else {
		snprintf(text, room, "%lld to %lld", (long long)row->min,
			 (long long)row->max);
	}
}

/* " of /etc/dicomm.conf" */
static const char *of(const struct config_line *line)
{
	return line ? " of " : "";
}

static const char *path_of(const struct config_line *line)
{
	return line ? line->path : "";
}

/* "DICOMM_SPIN many is not valid (wanted: a whole number)" */
static void print_rejected(const struct row *row, const struct value *value,
			   char *text, size_t room)
{
	char wanted[160];

	print_wanted(row, value->wanted, wanted, sizeof(wanted));
	snprintf(text, room, "%s %s%s%s is not valid (wanted: %s)",
		 value->variable,
		 (row->flags & (SECRET | ID)) ? HIDDEN
		 : value->given               ? value->given
					      : "",
		 of(value->line), path_of(value->line), wanted);
}

static void report_row(const struct row *row, const struct value *value)
{
	char text[512];

	if (value->wanted) {
		print_rejected(row, value, text, sizeof(text));
		if (row->flags & PROTECTS)
			log_warn("%s: no communicator can be made", text);
		else
			log_warn("%s, using the default %s", text,
				 *row->value ? row->value : "(unset)");
	} else if (value->line) {
		log_info("%s %s is from %s", row->name, value->shown,
			 value->line->path);
	} else if (value->variable && value->variable != row->name) {
		log_info("%s is not set, taking %s %s", row->name,
			 value->variable, value->shown);
	}
	if ((row->flags & SECRET) && value->line && value->line->exposed)
		log_warn("%s is in %s, which others can read", row->name,
			 value->line->path);
}

/* Returns the edit distance (Levenshtein) of two short names. */
static size_t distance(const char *a, size_t alen, const char *b)
{
	size_t blen = strlen(b);
	size_t cost[64], diagonal, above, best;

	if (blen >= sizeof(cost) / sizeof(*cost))
		return SIZE_MAX;
	for (size_t j = 0; j <= blen; j++)
		cost[j] = j;
	for (size_t i = 1; i <= alen; i++) {
		diagonal = cost[0];
		cost[0] = i;
		for (size_t j = 1; j <= blen; j++) {
			above = cost[j];
			best = diagonal + (a[i - 1] != b[j - 1]);
			if (above + 1 < best)
				best = above + 1;
			if (cost[j - 1] + 1 < best)
				best = cost[j - 1] + 1;
			cost[j] = best;
			diagonal = above;
		}
	}
	return cost[blen];
}

/* Returns true for variables of the tests, benchmarks and scripts, and of the
 * PyTorch package, which reads its own. They are not in the table. */
static bool ignored(const char *name, size_t len)
{
	return !strncmp(name, "DICOMM_TEST_", 12) ||
	       !strncmp(name, "DICOMM_BENCH_", 13) ||
	       !strncmp(name, "DICOMM_TORCH_", 13) ||
	       (len == 13 && !strncmp(name, "DICOMM_PREFIX", 13));
}

static size_t common_prefix(const char *name, size_t len, const char *other)
{
	size_t n = 0;

	while (n < len && name[n] == other[n])
		n++;
	return n;
}

static void report_variable(const char *name, size_t len,
			    const struct config_line *line)
{
	const char *nearest = NULL;
	size_t least = SIZE_MAX, begins = 0, d, same;

	if (ignored(name, len)) {
		if (line)
			log_warn("%s of %s is read from the environment only",
				 name, line->path);
		return;
	}
	for (int i = 0; i < CONFIG_KEYS; i++) {
		d = distance(name, len, rows[i].name);
		if (d == 0)
			return;
		/* Among equally near names, prefer one with the same beginning:
		 * users rather leave out the end. */
		same = common_prefix(name, len, rows[i].name);
		if (d < least || (d == least && same > begins)) {
			least = d;
			begins = same;
			nearest = rows[i].name;
		}
	}
	log_warn("%.*s%s%s is not a variable of this library; the nearest is "
		 "%s",
		 (int)(len < 100 ? len : 100), name, of(line), path_of(line),
		 nearest);
}

static void report(void)
{
	const struct config_line *line;

	if (*config_file_error())
		log_warn("%s: no communicator can be made",
			 config_file_error());
	for (int i = 0; (line = config_file_line_at(i)); i++)
		report_variable(line->name, strlen(line->name), line);
	for (int i = 0; i < CONFIG_KEYS; i++)
		report_row(&rows[i], &values[i]);
	for (char **e = environ; e && *e; e++)
		if (!strncmp(*e, PREFIX, strlen(PREFIX)))
			report_variable(*e, strcspn(*e, "="), NULL);
}

static bool is_given(const struct value *value, struct setting s)
{
	if (!s.text)
		return !value->variable;
	return value->variable == s.name && value->line == s.line &&
	       value->given && !strcmp(value->given, s.text);
}

/* Returns the value of a live row, with the lock held; *made becomes true if
 * the row never had it before. */
static struct value *find_live(const struct row *row, struct value *first,
			       bool *made)
{
	struct setting s = setting_of(row);
	struct value *value = first;

	while (value && !is_given(value, s))
		value = value->other;
	if (value)
		return value;
	value = calloc(1, sizeof(*value));
	if (!value)
		return first;
	load_value(row, s, value);
	value->other = first->other;
	first->other = value;
	*made = true;
	return value;
}

static const struct value *get_live(enum config_key key)
{
	const struct value *value;
	bool made = false;

	fork_lock(FORK_CONFIG);
	value = find_live(&rows[key], &values[key], &made);
	fork_unlock(FORK_CONFIG);
	if (made)
		report_row(&rows[key], value);
	return value;
}

/* The report runs after loading, not during it: a message may reach a callback
 * of the user that asks for a parameter. */
static const struct value *get(enum config_key key)
{
	pthread_once(&once, load);
	if (!atomic_load_explicit(&reported, memory_order_relaxed) &&
	    !atomic_exchange(&reported, true))
		report();
	return (rows[key].flags & LIVE) ? get_live(key) : &values[key];
}

dicomm_result_t config_check(void)
{
	char text[512];

	get(CONFIG_CONF); /* reads the files */
	if (*config_file_error())
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s",
			    config_file_error());
	for (int i = 0; i < CONFIG_KEYS; i++) {
		const struct value *value = get((enum config_key)i);

		if (!(rows[i].flags & PROTECTS) || !value->wanted)
			continue;
		print_rejected(&rows[i], value, text, sizeof(text));
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s", text);
	}
	return DICOMM_SUCCESS;
}

static void want(bool right_type)
{
	if (!right_type)
		abort(); /* also if assert is compiled out */
}

const char *config_string(enum config_key key)
{
	want(rows[key].kind == KIND_STRING);
	return get(key)->text;
}

const char *config_shown(enum config_key key)
{
	return get(key)->shown;
}

int64_t config_int(enum config_key key)
{
	want(rows[key].kind == KIND_INT || rows[key].kind == KIND_BYTES);
	return get(key)->number;
}

bool config_bool(enum config_key key)
{
	want(rows[key].kind == KIND_BOOL);
	return get(key)->number != 0;
}

bool config_is_default(enum config_key key)
{
	return !strcmp(get(key)->origin, "default");
}

bool config_row(int index, dicomm_param_info_t *info)
{
	const struct row *row;

	if (index < 0 || index >= CONFIG_KEYS)
		return false;
	row = &rows[index];
	info->name = row->name;
	info->type = kind_names[row->kind];
	info->default_value = row->value;
	info->value = get((enum config_key)index)->shown;
	info->origin = get((enum config_key)index)->origin;
	info->help = row->help;
	return true;
}

/* Returns a mark for a default, if ranks must also agree on whether the value
 * was set. */
static const char *unchosen_mark(enum config_key key)
{
	bool unchosen = (rows[key].flags & CHOSEN) && config_is_default(key);

	return unchosen ? "(default)" : "";
}

uint64_t config_shared_hash(void)
{
	uint64_t hash = HASH_START;
	const char *text;

	for (int i = 0; i < CONFIG_KEYS; i++) {
		if (!(rows[i].flags & SHARED))
			continue;
		text = get((enum config_key)i)->text;
		hash = hash_bytes(hash, text, strlen(text) + 1);
		text = unchosen_mark((enum config_key)i);
		hash = hash_bytes(hash, text, strlen(text) + 1);
	}
	return hash;
}

void config_shared_text(char *text, size_t len)
{
	size_t used = 0;

	if (len)
		*text = '\0';
	for (int i = 0; i < CONFIG_KEYS; i++) {
		if (!(rows[i].flags & SHARED) || used >= len)
			continue;
		used += (size_t)snprintf(text + used, len - used, "%s%s=%s%s",
					 used ? " " : "", rows[i].name,
					 get((enum config_key)i)->text,
					 unchosen_mark((enum config_key)i));
	}
}
