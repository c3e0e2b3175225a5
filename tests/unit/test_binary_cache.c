/* SPDX-License-Identifier: BSD-3-Clause */
/* Binaries of kernels in a folder: whole ones come back, all else is as good as
 * none. Each case has a folder and a process of its own. */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/accel/launch/binary_cache.h"
#include "tests/support/capture.h"
#include "tests/support/runner.h"

static char top[32], folder[64];

static const char *const texts[] = {"device", "driver", "options", "source"};
static struct binary_key key;
static const char binary[] = "\0machine code";

static void setup(void)
{
	strcpy(top, "/tmp/dicomm.cache.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	snprintf(folder, sizeof(folder), "%s/of/two", top);
	setenv("DICOMM_CACHE_DIR", folder, 1);
	binary_cache_key(&key, texts, 4);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", top);
	ck_assert_int_eq(system(command), 0);
}

static bool is_kept(const struct binary_key *k)
{
	size_t len = 0;
	char *got = binary_cache_load(k, &len);
	bool same = got && len == sizeof(binary) && !memcmp(got, binary, len) &&
		    !got[len];

	ck_assert(same || !got);
	free(got);
	return same;
}

/* The only file of the folder */
static const char *path(void)
{
	static char text[400];
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(text, sizeof(text), "%s/%s", folder,
				 e->d_name);
			n++;
		}
	closedir(d);
	ck_assert_int_eq(n, 1);
	return text;
}

START_TEST(what_is_kept_comes_back)
{
	struct stat st;

	ck_assert(binary_cache_works());
	ck_assert(!is_kept(&key));
	binary_cache_keep(&key, binary, sizeof(binary));
	ck_assert(is_kept(&key));
	ck_assert_int_eq(stat(folder, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0700);
	ck_assert_int_eq(stat(path(), &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(each_text_counts)
{
	static const char *const other[][4] = {
		{"another", "driver", "options", "source"},
		{"device", "another", "options", "source"},
		{"device", "driver", "another", "source"},
		{"device", "driver", "options", "another"},
		{"devicedriver", "", "options", "source"},
		{"driver", "device", "options", "source"},
	};
	struct binary_key k;

	binary_cache_keep(&key, binary, sizeof(binary));
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
		binary_cache_key(&k, other[i], 4);
		ck_assert(!is_kept(&k));
	}
	binary_cache_key(&k, texts, 3);
	ck_assert(!is_kept(&k));
}
END_TEST

/* Any byte of it, and any length */
START_TEST(a_damaged_file_is_none)
{
	char bytes[256], changed[257];
	size_t len;
	FILE *f;

	binary_cache_keep(&key, binary, sizeof(binary));
	f = fopen(path(), "r");
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (size_t i = 0; i < 2 * len; i++) {
		size_t now = i < len ? len : i - len;

		memcpy(changed, bytes, len);
		if (i < len)
			changed[i] ^= 1;
		f = fopen(path(), "w");
		ck_assert_uint_eq(fwrite(changed, 1, now, f), now);
		fclose(f);
		ck_assert(!is_kept(&key));
	}
	changed[len] = 0;
	f = fopen(path(), "w");
	fwrite(changed, 1, len + 1, f);
	fclose(f);
	ck_assert(!is_kept(&key));
	/* It is replaced. */
	binary_cache_keep(&key, binary, sizeof(binary));
	ck_assert(is_kept(&key));
}
END_TEST

/* The same bytes under the name of another key */
START_TEST(a_file_of_another_key_is_none)
{
	char mine[400];
	struct binary_key k;

	binary_cache_keep(&key, binary, sizeof(binary));
	strcpy(mine, path());
	unlink(mine);
	binary_cache_key(&k, texts, 3);
	binary_cache_keep(&k, binary, sizeof(binary));
	ck_assert_int_eq(rename(path(), mine), 0);
	ck_assert(!is_kept(&key));
}
END_TEST

START_TEST(what_others_could_have_written_is_none)
{
	char mine[400], other[64];

	binary_cache_keep(&key, binary, sizeof(binary));
	strcpy(mine, path());
	ck_assert_int_eq(chmod(mine, 0620), 0);
	ck_assert(!is_kept(&key));
	ck_assert_int_eq(chmod(mine, 0602), 0);
	ck_assert(!is_kept(&key));
	ck_assert_int_eq(chmod(mine, 0600), 0);
	ck_assert(is_kept(&key));
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(mine, 1, 1), 0);
		ck_assert(!is_kept(&key));
		ck_assert_int_eq(chown(mine, 0, 0), 0);
	}
	snprintf(other, sizeof(other), "%s/other", top);
	ck_assert_int_eq(rename(mine, other), 0);
	ck_assert_int_eq(symlink(other, mine), 0);
	ck_assert(!is_kept(&key));
	unlink(mine);
	ck_assert_int_eq(mkfifo(mine, 0600), 0);
	ck_assert(!is_kept(&key));
}
END_TEST

START_TEST(an_empty_value_keeps_nothing)
{
	setenv("DICOMM_CACHE_DIR", "", 1);
	setenv("HOME", top, 1);
	ck_assert(!binary_cache_works());
	binary_cache_keep(&key, binary, sizeof(binary));
	ck_assert(!is_kept(&key));
	ck_assert_int_eq(rmdir(top), 0);
	ck_assert_int_eq(mkdir(top, 0700), 0);
}
END_TEST

/* As it is for users who set nothing */
START_TEST(caches_have_a_place_by_default)
{
	unsetenv("DICOMM_CACHE_DIR");
	setenv("HOME", top, 1);
	if (_i)
		snprintf(folder, sizeof(folder), "%s/.cache/dicomm", top);
	else
		snprintf(folder, sizeof(folder), "%s/dicomm", top);
	setenv("XDG_CACHE_HOME", _i ? "relative" : top, 1);
	binary_cache_keep(&key, binary, sizeof(binary));
	ck_assert(is_kept(&key));
	path();
}
END_TEST

/* As that of a service */
START_TEST(a_home_that_is_not_there_stays_so)
{
	unsetenv("DICOMM_CACHE_DIR");
	unsetenv("XDG_CACHE_HOME");
	snprintf(folder, sizeof(folder), "%s/home", top);
	setenv("HOME", folder, 1);
	ck_assert(!binary_cache_works());
	binary_cache_keep(&key, binary, sizeof(binary));
	ck_assert_int_ne(access(folder, F_OK), 0);
}
END_TEST

START_TEST(a_folder_that_cannot_be_is_one_line)
{
	FILE *f;
	const char *line;

	snprintf(folder, sizeof(folder), "%s/of", top);
	f = fopen(folder, "w");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	setenv("DICOMM_DEBUG", "debug", 1);
	capture_start();
	for (int i = 0; i < 3; i++) {
		binary_cache_keep(&key, binary, sizeof(binary));
		ck_assert(!is_kept(&key));
	}
	ck_assert(!binary_cache_works());
	line = strstr(capture_text(), "kernels are not kept: ");
	ck_assert_msg(line && strstr(line, "Not a directory"), "%s",
		      capture_text());
	ck_assert_ptr_null(strstr(line + 1, "kernels are not kept: "));
}
END_TEST

/* ---- many at once ---- */

#define PROCESSES 4
#define ROUNDS 200

/* Whatever is there at a time is whole. */
static void *keep_and_load(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		binary_cache_keep(&key, binary, sizeof(binary));
		if (!is_kept(&key))
			_exit(1);
	}
	return arg;
}

static int both_threads(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, keep_and_load, NULL))
		return 2;
	keep_and_load(NULL);
	return pthread_join(other, NULL);
}

START_TEST(many_write_one_file)
{
	pid_t pids[PROCESSES];
	int status;

	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (!pids[i])
			_exit(both_threads());
	}
	for (int i = 0; i < PROCESSES; i++) {
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_int_eq(status, 0);
	}
	/* Nothing else is left. */
	path();
	ck_assert(is_kept(&key));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("binary_cache");
	TCase *t = tcase_create("binary_cache");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_is_kept_comes_back);
	tcase_add_test(t, each_text_counts);
	tcase_add_test(t, a_damaged_file_is_none);
	tcase_add_test(t, a_file_of_another_key_is_none);
	tcase_add_test(t, what_others_could_have_written_is_none);
	tcase_add_test(t, an_empty_value_keeps_nothing);
	tcase_add_loop_test(t, caches_have_a_place_by_default, 0, 2);
	tcase_add_test(t, a_home_that_is_not_there_stays_so);
	tcase_add_test(t, a_folder_that_cannot_be_is_one_line);
	tcase_add_test(t, many_write_one_file);
	suite_add_tcase(s, t);
	return runner_main(s);
}
