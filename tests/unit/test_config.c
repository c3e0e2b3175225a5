/* SPDX-License-Identifier: BSD-3-Clause */
/* Each test runs in a process of its own, as most of the table is read once. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/runner.h"

/* Whatever the caller of the tests has set must not matter. */
static void setup(void)
{
	char **e = environ, *name;

	while (*e) {
		name = strndup(*e, strcspn(*e, "="));
		if (!strncmp(name, "DICOMM_", 7) ||
		    !strncmp(name, "NCCL_", 5)) {
			unsetenv(name);
			e = environ;
		} else {
			e++;
		}
		free(name);
	}
	setenv("DICOMM_DEBUG", "info", 1);
	setenv("HOME", "/nonexistent", 1);
	capture_start();
}

static dicomm_param_info_t row(const char *name)
{
	dicomm_param_info_t info = {0};

	for (int i = 0; config_row(i, &info); i++)
		if (!strcmp(info.name, name))
			return info;
	ck_abort_msg("no row %s", name);
}

static int warnings(void)
{
	return capture_count("dicomm WARN");
}

#define LEN(array) ((int)(sizeof(array) / sizeof(*(array))))

START_TEST(defaults_are_as_documented)
{
	unsetenv("DICOMM_DEBUG");
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 16);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOT_BYTES), 32768);
	ck_assert_str_eq(config_string(CONFIG_SHM_CMA), "auto");
	ck_assert_int_eq(config_int(CONFIG_SHM_CMA_THRESHOLD), 16384);
	ck_assert_int_eq(config_int(CONFIG_SHM_MAP_THRESHOLD), 4096);
	ck_assert_int_eq(config_int(CONFIG_TCP_SILENT_MS), 90000);
	ck_assert_int_eq(config_int(CONFIG_TIMEOUT_MS), 1800000);
	ck_assert_int_eq(config_int(CONFIG_WARN_LATE_MS), 60000);
	ck_assert_int_eq(config_int(CONFIG_BOOTSTRAP_TIMEOUT), 60);
	ck_assert_str_eq(config_string(CONFIG_TRANSPORTS), "");
	ck_assert_str_eq(config_string(CONFIG_STAGING), "auto");
	ck_assert_str_eq(config_string(CONFIG_ALGO), "");
	ck_assert_int_eq(config_int(CONFIG_SPIN), -1);
	ck_assert_int_eq(config_int(CONFIG_RANK), -1);
	ck_assert_int_eq(config_int(CONFIG_SIZE), -1);
	ck_assert_str_eq(config_string(CONFIG_DEBUG), LOG_DEFAULT);
	ck_assert(!config_bool(CONFIG_DETERMINISTIC));
	for (int k = 0; k < CONFIG_KEYS; k++)
		ck_assert(config_is_default((enum config_key)k));
	ck_assert_str_eq(capture_text(), "");
}
END_TEST

START_TEST(every_row_is_complete_and_reads_its_default_back)
{
	dicomm_param_info_t info;

	for (int i = 0; i < CONFIG_KEYS; i++) {
		ck_assert(config_row(i, &info));
		ck_assert_int_eq(strncmp(info.name, "DICOMM_", 7), 0);
		/* No name twice. */
		ck_assert_ptr_eq(row(info.name).name, info.name);
		ck_assert_uint_gt(strlen(info.help), 10);
		ck_assert_uint_gt(strlen(info.type), 2);
		if (strcmp(info.name, "DICOMM_DEBUG")) {
			ck_assert_str_eq(info.value, info.default_value);
			ck_assert_str_eq(info.origin, "default");
		}
	}
	ck_assert(!config_row(-1, &info));
	ck_assert(!config_row(CONFIG_KEYS, &info));
}
END_TEST

START_TEST(a_variable_sets_its_row)
{
	setenv("DICOMM_SHM_SLOTS", "64", 1);
	setenv("DICOMM_DEVICE", "host", 1);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 64);
	ck_assert_str_eq(config_string(CONFIG_DEVICE), "host");
	ck_assert(!config_is_default(CONFIG_DEVICE));
	ck_assert_str_eq(row("DICOMM_SHM_SLOTS").value, "64");
	ck_assert_str_eq(row("DICOMM_SHM_SLOTS").default_value, "16");
	ck_assert_str_eq(row("DICOMM_SHM_SLOTS").origin,
			 "environment DICOMM_SHM_SLOTS");
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

START_TEST(an_empty_variable_is_an_unset_one)
{
	setenv("DICOMM_SHM_SLOTS", "", 1);
	setenv("DICOMM_SHM_CMA", "", 1);
	setenv("DICOMM_SOCKET_IFNAME", "", 1);
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 16);
	ck_assert_str_eq(config_string(CONFIG_SHM_CMA), "auto");
	ck_assert_str_eq(config_string(CONFIG_SOCKET_IFNAME), "lo");
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* Where empty means off */
START_TEST(an_empty_variable_may_be_a_value)
{
	setenv("DICOMM_CACHE_DIR", "", 1);
	ck_assert_str_eq(config_string(CONFIG_CACHE_DIR), "");
	ck_assert(!config_is_default(CONFIG_CACHE_DIR));
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

static const struct {
	const char *text;
	long long bytes; /* -1: refused */
	const char *canonical;
} sizes[] = {
	{"0", 0, "0"},
	{"1", 1, "1"},
	{"1000", 1000, "1000"},
	{"4096", 4096, "4K"},
	{"16k", 16384, "16K"},
	{"1536K", 1536 << 10, "1536K"},
	{"3M", 3 << 20, "3M"},
	{"2g", 2ll << 30, "2G"},
	{"8T", 8ll << 40, "8T"},
	{"8388607T", 8388607ll << 40, "8388607T"},
	{"8388608T", -1, NULL}, /* 2^63 */
	{"9223372036854775808", -1, NULL},
	{"-1", -1, NULL},
	{"-1K", -1, NULL},
	{"K", -1, NULL},
	{"1KK", -1, NULL},
	{"1 K", -1, NULL},
	{" 1", -1, NULL},
	{"+1", -1, NULL},
	{"0x10", -1, NULL},
	{"1.5K", -1, NULL},
	{"many", -1, NULL},
};

START_TEST(bytes_take_a_suffix_and_nothing_else)
{
	setenv("DICOMM_SHM_CMA_THRESHOLD", sizes[_i].text, 1);
	if (sizes[_i].bytes >= 0) {
		ck_assert_int_eq(config_int(CONFIG_SHM_CMA_THRESHOLD),
				 sizes[_i].bytes);
		ck_assert_str_eq(row("DICOMM_SHM_CMA_THRESHOLD").value,
				 sizes[_i].canonical);
		ck_assert_int_eq(warnings(), 0);
	} else {
		ck_assert_int_eq(config_int(CONFIG_SHM_CMA_THRESHOLD), 16384);
		ck_assert_int_eq(warnings(), 1);
	}
}
END_TEST

static const struct {
	const char *text;
	int value; /* -1: refused */
} bools[] = {
	{"1", 1},   {"0", 0},  {"true", 1},    {"FALSE", 0},
	{"yes", 1}, {"No", 0}, {"on", 1},      {"off", 0},
	{"2", -1},  {"y", -1}, {"enable", -1},
};

START_TEST(bools_are_words_or_digits)
{
	setenv("DICOMM_DETERMINISTIC", bools[_i].text, 1);
	ck_assert(config_bool(CONFIG_DETERMINISTIC) == (bools[_i].value == 1));
	ck_assert_int_eq(warnings(), bools[_i].value < 0);
	ck_assert_str_eq(row("DICOMM_DETERMINISTIC").value,
			 bools[_i].value == 1 ? "1" : "0");
}
END_TEST

static const struct {
	const char *name, *text, *wanted;
} invalid[] = {
	{"DICOMM_SHM_SLOTS", "15", "a power of two"},
	{"DICOMM_SHM_SLOTS", "1", "4 to 64"},
	{"DICOMM_SHM_SLOTS", "128", "4 to 64"},
	{"DICOMM_SHM_SLOTS", "16K", "a whole number"},
	{"DICOMM_SHM_SLOTS", "-16", "4 to 64"},
	{"DICOMM_SHM_SLOTS", "auto", "a whole number"},
	{"DICOMM_SHM_SLOT_BYTES", "5000", "a multiple of 4K"},
	{"DICOMM_SHM_SLOT_BYTES", "1G", "4096 to 16777216"},
	{"DICOMM_SHM_CMA", "maybe", "one of auto, on, off"},
	{"DICOMM_DEBUG", "loud", "one of none, error, version, warn, info"},
	{"DICOMM_RANK", "-1", "at least 0"},
	{"DICOMM_SIZE", "0", "at least 1"},
	{"DICOMM_CACHE_DIR", "off", "a path that begins with /"},
	{"DICOMM_SIZE", "4294967297", "at least 1"},
	{"DICOMM_SOCKET_FAMILY", "AF_IPX", "one of AF_INET, AF_INET6"},
	{"DICOMM_SPIN", "-1", "at least 0"},
	{"DICOMM_STAGING", "always", "one of auto, never"},
	{"DICOMM_TCP_SILENT_MS", "999", "0, or at least 1000"},
	{"DICOMM_TIMEOUT_MS", "30m", "a whole number"},
	{"DICOMM_BOOTSTRAP_TIMEOUT", "0", "1 to 86400"},
	{"DICOMM_PORT_RANGE", "200", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "300-200", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "0-200", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "1-65536", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "1-2-3", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "1--3", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "1- 3", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "1-3x", "two ports, first-last"},
	{"DICOMM_PORT_RANGE", "100000000000-100000000001",
	 "two ports, first-last"},
};

/* The warning goes to a sink too, as DICOMM_DEBUG may itself be invalid. */
static void keep_text(int level, const char *message, void *ctx)
{
	if (level == LOG_WARN)
		snprintf(ctx, 512, "%s", message);
}

START_TEST(an_invalid_value_is_named_and_the_default_used)
{
	char text[512] = "", expected[256];

	setenv(invalid[_i].name, invalid[_i].text, 1);
	log_set_sink(keep_text, text);
	ck_assert_str_eq(row(invalid[_i].name).value,
			 row(invalid[_i].name).default_value);
	ck_assert_str_eq(row(invalid[_i].name).origin, "default");
	snprintf(expected, sizeof(expected), "%s %s is not valid (wanted: %s",
		 invalid[_i].name, invalid[_i].text, invalid[_i].wanted);
	ck_assert_msg(!strncmp(text, expected, strlen(expected)),
		      "'%s' instead of '%s'", text, expected);
	/* Once, however often it is read. */
	text[0] = '\0';
	config_row(0, &(dicomm_param_info_t){0});
	ck_assert_str_eq(text, "");
}
END_TEST

/* With the default there would be no protection. */
static const char *const protections[][2] = {
	{"DICOMM_DETERMINISTIC", "2"}, {"DICOMM_DETERMINISTIC", "ture"},
	{"DICOMM_ENCRYPT", "yes!"},    {"DICOMM_ENCRYPT", "2"},
	{"DICOMM_ENCRYPT", "aes"},     {"DICOMM_PORT_RANGE", "20000"},
	{"DICOMM_STAGING", "nevre"},   {"DICOMM_STAGING", "0"},
	{"DICOMM_SOCKET_FAMILY", "4"}, {"NCCL_SOCKET_FAMILY", "inet"},
};

START_TEST(a_bad_value_of_a_protection_is_refused)
{
	const char *name = protections[_i][0], *value = protections[_i][1];
	char text[128];

	setenv(name, value, 1);
	ck_assert_int_eq(config_check(), DICOMM_ERR_INVALID_ARGUMENT);
	snprintf(text, sizeof(text), "%s %s is not valid", name, value);
	ck_assert_msg(!!strstr(log_last_error(), text), "%s", log_last_error());
}
END_TEST

START_TEST(a_bad_value_of_anything_else_is_not)
{
	setenv("DICOMM_SPIN", "many", 1);
	setenv("NCCL_IB_TIMEOUT", "1000", 1);
	setenv("DICOMM_ENCRYPT", "on", 1);
	ck_assert_int_eq(config_check(), DICOMM_SUCCESS);
	ck_assert_int_eq(warnings(), 2);
}
END_TEST

static const struct {
	const char *name;
	enum config_key key;
} switches[] = {
	{"DICOMM_ENCRYPT", CONFIG_ENCRYPT},
	{"DICOMM_PROBE", CONFIG_PROBE},
	{"DICOMM_SHM_CMA", CONFIG_SHM_CMA},
};
static const char *const spellings[][2] = {
	{"on", "off"},     {"ON", "Off"}, {"1", "0"},    {"true", "false"},
	{"True", "FALSE"}, {"yes", "no"}, {"YES", "No"},
};

START_TEST(a_switch_takes_every_spelling_of_on_and_off)
{
	int spelling = _i / LEN(switches) / 2, off = _i / LEN(switches) % 2;

	setenv(switches[_i % LEN(switches)].name, spellings[spelling][off], 1);
	ck_assert_str_eq(config_string(switches[_i % LEN(switches)].key),
			 off ? "off" : "on");
	ck_assert_int_eq(config_check(), DICOMM_SUCCESS);
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

START_TEST(a_port_range_is_kept_as_it_is)
{
	setenv("DICOMM_PORT_RANGE", "20000-20100", 1);
	ck_assert_str_eq(config_string(CONFIG_PORT_RANGE), "20000-20100");
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

START_TEST(a_choice_reads_as_the_table_spells_it)
{
	setenv("DICOMM_SHM_CMA", "OFF", 1);
	setenv("NCCL_SOCKET_FAMILY", "af_inet6", 1);
	setenv("DICOMM_SPIN", "Auto", 1);
	ck_assert_str_eq(config_string(CONFIG_SHM_CMA), "off");
	ck_assert_str_eq(config_string(CONFIG_SOCKET_FAMILY), "AF_INET6");
	ck_assert_int_eq(config_int(CONFIG_SPIN), -1);
	ck_assert_str_eq(row("DICOMM_SPIN").value, "auto");
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

static const struct {
	enum config_key key;
	const char *ours, *nccl, *text, *other;
} shared_names[] = {
	{CONFIG_COMM_ID, "DICOMM_COMM_ID", "NCCL_COMM_ID", "a:1", "b:2"},
	{CONFIG_DEBUG, "DICOMM_DEBUG", "NCCL_DEBUG", "info", "debug"},
	{CONFIG_HOSTID, "DICOMM_HOSTID", "NCCL_HOSTID", "n1", "n2"},
	{CONFIG_SOCKET_FAMILY, "DICOMM_SOCKET_FAMILY", "NCCL_SOCKET_FAMILY",
	 "AF_INET", "AF_INET6"},
	{CONFIG_SOCKET_IFNAME, "DICOMM_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
	 "lo", "eth"},
};

START_TEST(nccl_is_taken_where_ours_is_unset_and_logged)
{
	char expected[128];

	unsetenv(shared_names[_i].ours);
	setenv(shared_names[_i].nccl, shared_names[_i].text, 1);
	ck_assert_str_eq(config_string(shared_names[_i].key),
			 shared_names[_i].text);
	snprintf(expected, sizeof(expected), "INFO %s is not set, taking %s %s",
		 shared_names[_i].ours, shared_names[_i].nccl,
		 shared_names[_i].text);
	ck_assert_int_eq(capture_count(expected), 1);
	snprintf(expected, sizeof(expected), "environment %s",
		 shared_names[_i].nccl);
	ck_assert_str_eq(row(shared_names[_i].ours).origin, expected);
	ck_assert_ptr_nonnull(
		strstr(row(shared_names[_i].ours).help, shared_names[_i].nccl));
}
END_TEST

START_TEST(ours_beats_nccl)
{
	setenv(shared_names[_i].ours, shared_names[_i].other, 1);
	setenv(shared_names[_i].nccl, shared_names[_i].text, 1);
	ck_assert_str_eq(config_string(shared_names[_i].key),
			 shared_names[_i].other);
	ck_assert_int_eq(capture_count("is not set, taking"), 0);
}
END_TEST

START_TEST(an_unknown_variable_is_named_with_the_nearest_once)
{
	setenv("DICOMM_TIMEOUT", "5", 1);
	setenv("DICOMM_SHM_SLOT", "5", 1);
	setenv("DICOMM_ALGOS", "ring", 1);
	setenv("DICOMMUNITY", "5", 1);
	config_int(CONFIG_TIMEOUT_MS);
	config_int(CONFIG_TIMEOUT_MS);
	ck_assert_int_eq(warnings(), 3);
	ck_assert_int_eq(capture_count("DICOMM_TIMEOUT is not a variable of "
				       "this library; the nearest is "
				       "DICOMM_TIMEOUT_MS"),
			 1);
	ck_assert_int_eq(capture_count("nearest is DICOMM_SHM_SLOTS"), 1);
	ck_assert_int_eq(capture_count("nearest is DICOMM_ALGO"), 1);
}
END_TEST

START_TEST(names_of_any_length_are_survived)
{
	char name[4096];

	memset(name, 'X', sizeof(name) - 1);
	memcpy(name, "DICOMM_", 7);
	name[sizeof(name) - 1] = '\0';
	setenv(name, "1", 1);
	setenv("DICOMM_", "1", 1);
	config_int(CONFIG_TIMEOUT_MS);
	ck_assert_int_eq(warnings(), 2);
}
END_TEST

START_TEST(names_of_tests_benchmarks_and_scripts_are_ignored)
{
	setenv("DICOMM_TEST_SEED", "5", 1);
	setenv("DICOMM_BENCH_ROUNDS", "5", 1);
	setenv("DICOMM_PREFIX", "/usr", 1);
	config_int(CONFIG_TIMEOUT_MS);
	ck_assert_int_eq(warnings(), 0);
}
END_TEST

#define SECRET "0123456789abcdefABCDEF-_0123456789abcdefABC"

static const struct {
	const char *id, *shown;
} ids[] = {
	{"127.0.0.1:5000", "127.0.0.1:5000"},
	{"[fe80::1]:5000", "[fe80::1]:5000"},
	{"nowhere", "nowhere"},
	{"dicomm1:127.0.0.1:5000:" SECRET, "dicomm1:127.0.0.1:5000:(hidden)"},
	{"dicomm1:[::1]:5000:" SECRET, "dicomm1:[::1]:5000:(hidden)"},
	/* damaged: cut, moved, pasted in parts */
	{"dicomm1:127.0.0.1:5000:Abc1", "dicomm1:127.0.0.1:5000:(hidden)"},
	{"127.0.0.1:5000 " SECRET, "127.0.0.1:(hidden)"},
	{"dicomm1:127.0.0.1:" SECRET ":5000", "(hidden)"},
	{SECRET, "(hidden)"},
	{SECRET ":x", "(hidden)"},
};

START_TEST(the_secret_of_an_id_is_not_shown)
{
	const char *name = _i % 2 ? "NCCL_COMM_ID" : "DICOMM_COMM_ID";

	setenv("DICOMM_DEBUG", "trace", 1);
	setenv(name, ids[_i / 2].id, 1);
	ck_assert_str_eq(config_string(CONFIG_COMM_ID), ids[_i / 2].id);
	ck_assert_str_eq(config_shown(CONFIG_COMM_ID), ids[_i / 2].shown);
	ck_assert_str_eq(row("DICOMM_COMM_ID").value, ids[_i / 2].shown);
	if (strstr(ids[_i / 2].id, SECRET))
		ck_assert_int_eq(capture_count(SECRET), 0);
}
END_TEST

START_TEST(a_secret_is_usable_but_not_shown)
{
	setenv("DICOMM_COMM_KEY", "swordfish", 1);
	ck_assert_str_eq(config_string(CONFIG_COMM_KEY), "swordfish");
	ck_assert_str_eq(row("DICOMM_COMM_KEY").value, "(hidden)");
	ck_assert_int_eq(capture_count("swordfish"), 0);
}
END_TEST

START_TEST(values_stay_when_the_environment_changes)
{
	setenv("DICOMM_DEVICE", "host", 1);
	ck_assert_str_eq(config_string(CONFIG_DEVICE), "host");
	setenv("DICOMM_DEVICE", "cuda:0", 1);
	ck_assert_str_eq(config_string(CONFIG_DEVICE), "host");
}
END_TEST

static void be_rank(const char *rank, const char *size, const char *id,
		    const char *key)
{
	setenv("DICOMM_RANK", rank, 1);
	setenv("DICOMM_SIZE", size, 1);
	setenv("NCCL_COMM_ID", id, 1);
	setenv("DICOMM_COMM_KEY", key, 1);
	ck_assert_int_eq(config_int(CONFIG_RANK), atoi(rank));
	ck_assert_int_eq(config_int(CONFIG_SIZE), atoi(size));
	ck_assert_str_eq(config_string(CONFIG_COMM_ID), id);
	ck_assert_str_eq(config_string(CONFIG_COMM_KEY), key);
	ck_assert_str_eq(row("DICOMM_RANK").value, rank);
}

START_TEST(who_this_process_is_follows_the_environment)
{
	const char *first;

	be_rank("0", "2", "a:1", "sesame");
	first = config_string(CONFIG_COMM_KEY);
	be_rank("1", "3", "b:2", "swordfish");
	be_rank("0", "2", "a:1", "sesame");
	/* Nothing is lost, and nothing grows. */
	ck_assert_ptr_eq(first, config_string(CONFIG_COMM_KEY));
	setenv("DICOMM_COMM_ID", "c:3", 1);
	ck_assert_str_eq(config_string(CONFIG_COMM_ID), "c:3");
	unsetenv("DICOMM_COMM_ID");
	ck_assert_str_eq(config_string(CONFIG_COMM_ID), "a:1");
	unsetenv("DICOMM_RANK");
	ck_assert(config_is_default(CONFIG_RANK));
	ck_assert_int_eq(config_int(CONFIG_RANK), -1);
	ck_assert_int_eq(warnings(), 0);
	setenv("DICOMM_RANK", "first", 1);
	ck_assert(config_is_default(CONFIG_RANK));
	ck_assert_int_eq(config_int(CONFIG_RANK), -1);
	ck_assert_int_eq(capture_count("DICOMM_RANK first is not valid"), 1);
	ck_assert_int_eq(warnings(), 1);
}
END_TEST

START_TEST(shared_settings_are_text_and_hash)
{
	char text[512], part[20];

	config_shared_text(text, sizeof(text));
	ck_assert_str_eq(text, "DICOMM_ALGO= DICOMM_DETERMINISTIC=0 "
			       "DICOMM_DRIFT=1 "
			       "DICOMM_IB_CONNECT=oob "
			       "DICOMM_IB_EAGER_BYTES=4K "
			       "DICOMM_ISLAND=off "
			       "DICOMM_ISLAND_BYTES=auto "
			       "DICOMM_ISLAND_PART_BYTES=auto "
			       "DICOMM_PROBE=auto "
			       "DICOMM_SHM_SLOT_BYTES=32K(default) "
			       "DICOMM_SHM_SLOTS=16(default)");
	ck_assert(config_shared_hash() == config_shared_hash());
	/* A short buffer gets what fits. */
	config_shared_text(part, sizeof(part));
	ck_assert_uint_eq(strlen(part), sizeof(part) - 1);
	ck_assert_int_eq(strncmp(part, text, sizeof(part) - 1), 0);
	config_shared_text(part, 0);
}
END_TEST

/* The hash that a process with this variable has. */
static uint64_t hash_with(const char *name, const char *text)
{
	uint64_t hash = 0;
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (name)
			setenv(name, text, 1);
		hash = config_shared_hash();
		_exit(write(fds[1], &hash, sizeof(hash)) != sizeof(hash));
	}
	close(fds[1]);
	ck_assert_int_eq(read(fds[0], &hash, sizeof(hash)), sizeof(hash));
	close(fds[0]);
	return hash;
}

START_TEST(the_hash_differs_exactly_where_ranks_must_agree)
{
	uint64_t plain = hash_with(NULL, NULL);

	ck_assert(hash_with("DICOMM_ALGO", "ring") != plain);
	ck_assert(hash_with("DICOMM_DETERMINISTIC", "1") != plain);
	ck_assert(hash_with("DICOMM_SHM_SLOTS", "32") != plain);
	ck_assert(hash_with("DICOMM_SHM_SLOT_BYTES", "64K") != plain);
	/* Who chooses the default keeps it where it would give way. */
	ck_assert(hash_with("DICOMM_SHM_SLOT_BYTES", "32768") != plain);
	ck_assert(hash_with("DICOMM_SHM_SLOT_BYTES", "32768") ==
		  hash_with("DICOMM_SHM_SLOT_BYTES", "32K"));
	ck_assert(hash_with("DICOMM_SHM_SLOTS", "16") != plain);
	ck_assert(hash_with("DICOMM_SHM_SLOTS", "none") == plain);
	ck_assert(hash_with("DICOMM_DETERMINISTIC", "off") == plain);
	ck_assert(hash_with("DICOMM_TIMEOUT_MS", "1") == plain);
	ck_assert(hash_with("DICOMM_RANK", "1") == plain);
	ck_assert(hash_with("DICOMM_SHM_CMA", "off") == plain);
	ck_assert(hash_with("DICOMM_DEBUG", "debug") == plain);
}
END_TEST

/* A callback of the user may call the library; that must not lock up. */
static void ask_again(int level, const char *message, void *ctx)
{
	(void)level;
	(void)message;
	*(int64_t *)ctx = config_int(CONFIG_SHM_SLOTS);
}

START_TEST(a_sink_may_ask_for_a_parameter)
{
	int64_t slots = 0;

	setenv("DICOMM_SHM_SLOTS", "3", 1);
	log_set_sink(ask_again, &slots);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 16);
	ck_assert_int_eq(slots, 16);
}
END_TEST

#define THREADS 4

static void *reader(void *ctx)
{
	pthread_barrier_wait(ctx);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 16);
	ck_assert_str_eq(config_string(CONFIG_SHM_CMA), "off");
	return NULL;
}

START_TEST(threads_that_come_first_at_once_agree_and_warn_once)
{
	pthread_t threads[THREADS];
	pthread_barrier_t start;

	setenv("DICOMM_SHM_SLOTS", "3", 1);
	setenv("DICOMM_SHM_CMA", "off", 1);
	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, reader, &start), 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&start);
	ck_assert_int_eq(warnings(), 1);
}
END_TEST

START_TEST(a_key_of_another_type_aborts)
{
	switch (_i) {
	case 0:
		config_string(CONFIG_TIMEOUT_MS);
		break;
	case 1:
		config_int(CONFIG_DETERMINISTIC);
		break;
	case 2:
		config_bool(CONFIG_SHM_SLOTS);
		break;
	default:
		config_int(CONFIG_ALGO);
		break;
	}
}
END_TEST

/* ---- files ---- */

static char folder[] = "/tmp/dicomm_config_XXXXXX";
static char path[sizeof(folder) + 20];

static void write_file(const char *name, const char *text, mode_t mode)
{
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	ck_assert_int_eq(fchmod(fileno(f), mode), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static void remove_files(void)
{
	static const char *const names[] = {"a.conf", ".dicomm.conf"};

	for (int i = 0; i < LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

static void setup_file(void)
{
	setup();
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void use_file(const char *text)
{
	write_file("a.conf", text, 0600);
	setenv("DICOMM_CONF", path, 1);
}

START_TEST(a_file_sets_what_the_environment_does_not)
{
	char origin[160];

	use_file("# of this cluster\n\n  DICOMM_SHM_SLOTS = 32 \n"
		 "DICOMM_SHM_SLOTS=64\nDICOMM_TIMEOUT_MS=5\n"
		 "DICOMM_IB_TIMEOUT=20\nDICOMM_SPIN=\nDICOMM_IB_SL=3\n"
		 "DICOMM_RANK=4\n\tDICOMM_ALGO=allreduce:ring");
	setenv("DICOMM_TIMEOUT_MS", "7", 1);
	setenv("NCCL_IB_TIMEOUT", "21", 1);
	ck_assert_int_eq(config_check(), DICOMM_SUCCESS);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 32);
	ck_assert_int_eq(config_int(CONFIG_TIMEOUT_MS), 7);
	ck_assert_int_eq(config_int(CONFIG_IB_TIMEOUT), 21);
	ck_assert_int_eq(config_int(CONFIG_IB_SL), 3);
	ck_assert_int_eq(config_int(CONFIG_SPIN), -1);
	ck_assert_str_eq(config_string(CONFIG_ALGO), "allreduce:ring");
	snprintf(origin, sizeof(origin), "file %s", path);
	ck_assert_str_eq(row("DICOMM_SHM_SLOTS").origin, origin);
	ck_assert_str_eq(row("DICOMM_SPIN").origin, "default");
	ck_assert_int_eq(capture_count("DICOMM_SHM_SLOTS 32 is from"), 1);
	ck_assert_int_eq(warnings(), 0);
	/* It may be another rank next time. */
	ck_assert_int_eq(config_int(CONFIG_RANK), 4);
	setenv("DICOMM_RANK", "5", 1);
	ck_assert_int_eq(config_int(CONFIG_RANK), 5);
	unsetenv("DICOMM_RANK");
	ck_assert_int_eq(config_int(CONFIG_RANK), 4);
}
END_TEST

/* 1: the file that is asked for goes before that of the user. */
START_TEST(a_user_has_a_file_at_home)
{
	write_file(".dicomm.conf", "DICOMM_SHM_SLOTS=8\nDICOMM_IB_SL=9\n",
		   0600);
	setenv("HOME", folder, 1);
	if (_i)
		use_file("DICOMM_SHM_SLOTS=4\n");
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), _i ? 4 : 8);
	ck_assert_int_eq(config_int(CONFIG_IB_SL), _i ? 0 : 9);
}
END_TEST

static const struct {
	const char *text, *words;
} bad_files[] = {
	{"DICOMM_SPIN=3\nDICOMM_ENCRYPT on\n", "line 2 of %s: not NAME=VALUE"},
	{"export DICOMM_ENCRYPT=on\n",
	 "line 1 of %s: the name does not begin with DICOMM_"},
	{"# here\nNCCL_IB_SL=3\n",
	 "line 2 of %s: the name does not begin with DICOMM_"},
	{"DICOMM_CONF=/x\n", "line 1 of %s: DICOMM_CONF names a file"},
	{NULL, "%s: No such file or directory"},
};

START_TEST(nothing_begins_with_a_bad_file)
{
	char words[200];

	use_file(bad_files[_i].text ? bad_files[_i].text : "");
	if (!bad_files[_i].text)
		unlink(path);
	snprintf(words, sizeof(words), bad_files[_i].words, path);
	ck_assert_int_eq(config_check(), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_msg(strstr(log_last_error(), words), "%s", log_last_error());
	ck_assert_int_eq(capture_count("no communicator can be made"), 1);
}
END_TEST

START_TEST(a_long_line_is_refused)
{
	char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "DICOMM_ALGO=", 12);
	text[sizeof(text) - 1] = '\0';
	use_file(text);
	ck_assert_int_eq(config_check(), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "line 1 of"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "too long"));
}
END_TEST

START_TEST(what_is_wrong_in_a_file_is_told_with_its_path)
{
	char words[200];

	use_file("DICOMM_SHM_SLOT=8\nDICOMM_SHM_SLOTS=3\n"
		 "DICOMM_TORCH_DEFAULT=1\n");
	ck_assert_int_eq(config_check(), DICOMM_SUCCESS);
	ck_assert_int_eq(config_int(CONFIG_SHM_SLOTS), 16);
	snprintf(words, sizeof(words),
		 "DICOMM_SHM_SLOT of %s is not a variable", path);
	ck_assert_int_eq(capture_count(words), 1);
	snprintf(words, sizeof(words), "DICOMM_SHM_SLOTS 3 of %s is not valid",
		 path);
	ck_assert_int_eq(capture_count(words), 1);
	ck_assert_int_eq(capture_count("environment only"), 1);
	ck_assert_int_eq(warnings(), 3);
}
END_TEST

START_TEST(a_bad_protection_in_a_file_is_refused)
{
	use_file("DICOMM_ENCRYPT=strong\n");
	ck_assert_int_eq(config_check(), DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), path));
}
END_TEST

START_TEST(a_secret_in_a_file_is_the_users_own)
{
	write_file("a.conf", "DICOMM_COMM_KEY=sesame\n", _i ? 0644 : 0600);
	setenv("DICOMM_CONF", path, 1);
	ck_assert_str_eq(config_string(CONFIG_COMM_KEY), "sesame");
	ck_assert_int_eq(capture_count("which others can read"), _i);
	ck_assert_int_eq(capture_count("sesame"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("config");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, defaults_are_as_documented);
	tcase_add_test(tcase, every_row_is_complete_and_reads_its_default_back);
	tcase_add_test(tcase, a_variable_sets_its_row);
	tcase_add_test(tcase, an_empty_variable_is_an_unset_one);
	tcase_add_test(tcase, an_empty_variable_may_be_a_value);
	tcase_add_loop_test(tcase, bytes_take_a_suffix_and_nothing_else, 0,
			    LEN(sizes));
	tcase_add_loop_test(tcase, bools_are_words_or_digits, 0, LEN(bools));
	tcase_add_loop_test(tcase,
			    an_invalid_value_is_named_and_the_default_used, 0,
			    LEN(invalid));
	tcase_add_loop_test(tcase, a_bad_value_of_a_protection_is_refused, 0,
			    LEN(protections));
	tcase_add_test(tcase, a_bad_value_of_anything_else_is_not);
	tcase_add_loop_test(tcase, a_switch_takes_every_spelling_of_on_and_off,
			    0, 2 * LEN(switches) * LEN(spellings));
	tcase_add_test(tcase, a_port_range_is_kept_as_it_is);
	tcase_add_test(tcase, a_choice_reads_as_the_table_spells_it);
	tcase_add_loop_test(tcase, nccl_is_taken_where_ours_is_unset_and_logged,
			    0, LEN(shared_names));
	tcase_add_loop_test(tcase, ours_beats_nccl, 0, LEN(shared_names));
	tcase_add_test(tcase,
		       an_unknown_variable_is_named_with_the_nearest_once);
	tcase_add_test(tcase, names_of_any_length_are_survived);
	tcase_add_test(tcase,
		       names_of_tests_benchmarks_and_scripts_are_ignored);
	tcase_add_test(tcase, a_secret_is_usable_but_not_shown);
	tcase_add_loop_test(tcase, the_secret_of_an_id_is_not_shown, 0,
			    2 * (int)(sizeof(ids) / sizeof(*ids)));
	tcase_add_test(tcase, values_stay_when_the_environment_changes);
	tcase_add_test(tcase, who_this_process_is_follows_the_environment);
	tcase_add_test(tcase, shared_settings_are_text_and_hash);
	tcase_add_test(tcase, the_hash_differs_exactly_where_ranks_must_agree);
	tcase_add_test(tcase, a_sink_may_ask_for_a_parameter);
	tcase_add_test(tcase,
		       threads_that_come_first_at_once_agree_and_warn_once);
	tcase_add_loop_test_raise_signal(tcase, a_key_of_another_type_aborts,
					 SIGABRT, 0, 4);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("files");
	tcase_add_checked_fixture(tcase, setup_file, remove_files);
	tcase_add_test(tcase, a_file_sets_what_the_environment_does_not);
	tcase_add_loop_test(tcase, a_user_has_a_file_at_home, 0, 2);
	tcase_add_loop_test(tcase, nothing_begins_with_a_bad_file, 0,
			    LEN(bad_files));
	tcase_add_test(tcase, a_long_line_is_refused);
	tcase_add_test(tcase, what_is_wrong_in_a_file_is_told_with_its_path);
	tcase_add_test(tcase, a_bad_protection_in_a_file_is_refused);
	tcase_add_loop_test(tcase, a_secret_in_a_file_is_the_users_own, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
