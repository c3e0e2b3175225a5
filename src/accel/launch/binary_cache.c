/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps binaries in files: a head with the key and a hash, then the binary. */
#include "src/accel/launch/binary_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"

/* Of a file that is being written, for mkostemp() */
#define ENDING ".XXXXXX"
/* Room for the name of a file behind that of the folder. */
#define NAME_BYTES \
	(sizeof(((struct binary_key *)0)->hash) * 2 + sizeof("/" ENDING))
/* No kernel is that long, so no file that is longer is read into memory. */
#define MOST_BYTES ((size_t)256 << 20)

/* The last number counts the formats. */
static const char magic[16] = "dicomm kernel 1";

struct head {
	char magic[sizeof(magic)];
	struct binary_key key;
	uint64_t len; /* of the binary, which follows */
	uint8_t sum[32];
};

_Static_assert(sizeof(struct head) == 88, "no gaps");

/* ---- keys ---- */

void binary_cache_key(struct binary_key *key, const char *const *texts,
		      size_t n)
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, NULL, 0, sizeof(key->hash));
	for (size_t i = 0; i < n; i++) /* each with the NUL that ends it */
		crypto_generichash_update(&state,
					  (const unsigned char *)texts[i],
					  strlen(texts[i]) + 1);
	crypto_generichash_final(&state, key->hash, sizeof(key->hash));
}

/* ---- the folder ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[PATH_MAX - NAME_BYTES]; /* "": nothing is kept */
static atomic_bool failed;                 /* to write a file */

/* As the XDG Base Directory Specification says, which ignores relative paths.
 * Users of services have a home that must never come to be. */
static void find_folder(void)
{
	const char *given = config_string(CONFIG_CACHE_DIR);
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int len = 0;

	if (!config_is_default(CONFIG_CACHE_DIR))
		len = snprintf(folder, sizeof(folder), "%s", given);
	else if (cache && *cache == '/')
		len = snprintf(folder, sizeof(folder), "%s/dicomm", cache);
	else if (home && *home == '/' && !access(home, F_OK))
		len = snprintf(folder, sizeof(folder), "%s/.cache/dicomm",
			       home);
	if (len >= (int)sizeof(folder))
		folder[0] = '\0';
}

bool binary_cache_works(void)
{
	pthread_once(&once, find_folder);
	return folder[0] && !atomic_load(&failed);
}

static void path_of(const struct binary_key *key, char path[PATH_MAX])
{
	char name[sizeof(key->hash) * 2 + 1];

	sodium_bin2hex(name, sizeof(name), key->hash, sizeof(key->hash));
	snprintf(path, PATH_MAX, "%s/%s", folder, name);
}

/* Makes the folder, and those above it that are missing, for this user alone.
 * Who opens a file in it says what is wrong. */
static void make_folder(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/", folder);
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
}

/* ---- reading ---- */

static void sum_of(const struct head *head, const void *binary,
		   uint8_t sum[sizeof(head->sum)])
{
	crypto_generichash(sum, sizeof(head->sum), binary, head->len,
			   head->key.hash, sizeof(head->key.hash));
}

static bool read_all(int fd, void *to, size_t len)
{
	char *at = to;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = read(fd, at, len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

/* Nobody but this user, who may do anything with this process anyway, can have
 * written it. */
static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() &&
	       !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static bool fits(const struct head *head, const struct binary_key *key,
		 const struct stat *st)
{
	return !memcmp(head->magic, magic, sizeof(magic)) &&
	       !memcmp(&head->key, key, sizeof(*key)) &&
	       head->len <= MOST_BYTES &&
	       head->len + sizeof(*head) == (uint64_t)st->st_size;
}

static void *read_binary(int fd, const struct binary_key *key, size_t *len)
{
	uint8_t sum[sizeof(((struct head *)0)->sum)];
	char *binary = NULL;
	struct head head;
	struct stat st;

	if (fstat(fd, &st) || !is_ours(&st) ||
	    !read_all(fd, &head, sizeof(head)) || !fits(&head, key, &st))
		return NULL;
	binary = malloc(head.len + 1);
	if (!binary)
		return NULL;
	if (read_all(fd, binary, head.len)) {
		sum_of(&head, binary, sum);
		if (!memcmp(sum, head.sum, sizeof(sum))) {
			binary[head.len] = '\0';
			*len = head.len;
			return binary;
		}
	}
	free(binary);
	return NULL;
}

void *binary_cache_load(const struct binary_key *key, size_t *len)
{
	char path[PATH_MAX];
	void *binary;
	int fd;

	pthread_once(&once, find_folder);
	if (!folder[0])
		return NULL;
	path_of(key, path);
	/* It may be a pipe, which would block. */
	fd = descriptors_high(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
						 O_NONBLOCK | O_NOCTTY));
	if (fd < 0)
		return NULL;
	binary = read_binary(fd, key, len);
	close(fd);
	if (!binary)
		log_debug("%s: not used: damaged, or of another user", path);
	return binary;
}

/* ---- writing ---- */

static bool write_all(int fd, const void *from, size_t len)
{
	const char *at = from;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = write(fd, at, len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

/* Writes a file of another name, which becomes `path` when it is whole. */
static bool write_binary(const char *path, const struct head *head,
			 const void *binary)
{
	char other[PATH_MAX + sizeof(ENDING)];
	int fd, error;
	bool whole;

	snprintf(other, sizeof(other), "%s" ENDING, path);
	fd = descriptors_high(mkostemp(other, O_CLOEXEC));
	if (fd < 0)
		return false;
	whole = write_all(fd, head, sizeof(*head)) &&
		write_all(fd, binary, head->len);
	error = errno;
	if (close(fd) && whole) {
		error = errno;
		whole = false;
	}
	if (whole && !rename(other, path))
		return true;
	if (whole)
		error = errno;
	(void)unlink(other);
	errno = error;
	return false;
}

void binary_cache_keep(const struct binary_key *key, const void *binary,
		       size_t len)
{
	struct head head = {.key = *key, .len = len};
	char path[PATH_MAX];

	if (!binary_cache_works() || len > MOST_BYTES)
		return;
	path_of(key, path);
	memcpy(head.magic, magic, sizeof(magic));
	sum_of(&head, binary, head.sum);
	make_folder();
	if (!write_binary(path, &head, binary) &&
	    !atomic_exchange(&failed, true))
		log_debug("kernels are not kept: %s: %m", path);
}
