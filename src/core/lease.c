/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device that stays until neighbours have let go of it. */
#include "src/core/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/held.h"

struct lease {
	struct lease_place place;
	const struct accel *accel;
	int index;
	void *memory;
	struct lease *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct lease *ended; /* whose memory somebody still has */

/* A fork's child has none of the memory; another thread of its parent may have
 * had the lock. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	ended = NULL;
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

/* A process locks the byte of its own number. The lock belongs to what was
 * opened, not to the process: so those of two ranks in one do not mix. */
static int try_lock(int fd, int type, off_t from, off_t bytes)
{
	struct flock l = {.l_type = (short)type,
			  .l_whence = SEEK_SET,
			  .l_start = from,
			  .l_len = bytes};

	return fcntl(fd, F_OFD_SETLK, &l);
}

static bool is_locked(int fd, off_t from, off_t bytes)
{
	struct flock l = {.l_type = F_WRLCK,
			  .l_whence = SEEK_SET,
			  .l_start = from,
			  .l_len = bytes};

	return !fcntl(fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
}

/* ---- the owner ---- */

dicomm_result_t lease_begin(const struct accel *accel, int index, void *memory,
			    struct lease **out)
{
	struct lease *l = calloc(1, sizeof(*l));
	uint64_t id = 0;
	int fd;

	if (!l)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory for neighbours: out of memory");
	fd = memfd_create("dicomm-lease", MFD_CLOEXEC);
	if (fd < 0 || getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id) ||
	    pwrite(fd, &id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
		dicomm_result_t status =
			FAIL(DICOMM_ERR_SYSTEM,
			     "memory for neighbours: a file of leases: %m");

		if (fd >= 0)
			close(fd);
		free(l);
		return status;
	}
	*l = (struct lease){.place = {.id = id, .pid = getpid(), .fd = fd},
			    .accel = accel,
			    .index = index,
			    .memory = memory};
	*out = l;
	return DICOMM_SUCCESS;
}

void lease_tell(const struct lease *l, struct lease_place *place)
{
	*place = l->place;
}

/* Once it has locked all, nobody takes the lease any more; nor later, who had
 * opened it before, for then it is none. */
static bool try_free(struct lease *l)
{
	const uint64_t none = 0;

	if (try_lock(l->place.fd, F_WRLCK, 0, 0) ||
	    pwrite(l->place.fd, &none, sizeof(none), 0) !=
		    (ssize_t)sizeof(none))
		return false;
	if (l->memory)
		l->accel->free(l->memory);
	close(l->place.fd);
	free(l);
	return true;
}

static bool is_taken(const struct lease *l)
{
	off_t own = l->place.pid;

	return is_locked(l->place.fd, 0, own) ||
	       is_locked(l->place.fd, own + 1, 0);
}

bool lease_end(struct lease *l, int wait_ms)
{
	const struct timespec nap = {.tv_nsec = 200000};
	uint64_t end = clock_ms() + (uint64_t)wait_ms;
	bool taken;

	if (!l)
		return true;
	/* Ranks of this process may be ended by this very thread, later. */
	while ((taken = is_taken(l)) && clock_ms() < end)
		nanosleep(&nap, NULL);
	if (!try_free(l)) {
		log_info("%s:%d: memory stays until neighbours have let go of "
			 "it",
			 l->accel->name, l->index);
		pthread_mutex_lock(&lock);
		l->next = ended;
		ended = l;
		pthread_mutex_unlock(&lock);
	}
	lease_sweep();
	return !taken;
}

void lease_sweep(void)
{
	pthread_once(&once, setup);
	pthread_mutex_lock(&lock);
	for (struct lease **at = &ended; *at;) {
		struct lease *l = *at, *next = l->next;

		/* To free memory may wait for streams. */
		if (!held_by_none(l->accel->work, l->index)) {
			at = &l->next;
			continue;
		}
		if (try_free(l))
			*at = next;
		else
			at = &l->next;
		held_release();
	}
	pthread_mutex_unlock(&lock);
}

/* ---- neighbours ---- */

static bool is_it(int fd, const struct lease_place *place)
{
	uint64_t id;

	return pread(fd, &id, sizeof(id), 0) == (ssize_t)sizeof(id) &&
	       id == place->id;
}

dicomm_result_t lease_take(const struct lease_place *place, int *taken)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", place->pid, place->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE,
			    "memory of a neighbour: open %s: %m", path);
	if (try_lock(fd, F_RDLCK, getpid(), 1)) {
		dicomm_result_t status =
			FAIL(DICOMM_ERR_REMOTE,
			     "memory of a neighbour: lock %s: %s", path,
			     errno == EAGAIN ? "it has gone" : strerror(errno));

		close(fd);
		return status;
	}
	if (!is_it(fd, place)) {
		close(fd);
		return FAIL(DICOMM_ERR_REMOTE,
			    "memory of a neighbour: %s is not lease %016" PRIx64
			    " any more",
			    path, place->id);
	}
	*taken = fd;
	return DICOMM_SUCCESS;
}

void lease_give(int taken)
{
	/* A child of a fork keeps what was opened, but has no use for it. */
	(void)try_lock(taken, F_UNLCK, 0, 0);
	close(taken);
}
