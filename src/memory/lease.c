/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps device memory alive until no other process uses it. */
#include "src/memory/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/memfd.h"
#include "src/memory/blocked_streams.h"

struct lease {
	struct deferred deferred; /* frees this struct */
	struct lease_place place;
	const struct accel *accel;
	void *memory;
};

/* A process locks the byte whose offset is its own pid. The lock belongs to the
 * open file, not to the process, so two ranks of one process do not mix their
 * locks up. */
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

/* Free the memory, if the owner can lock all bytes. From then on nobody can
 * take the lease: a process that opened the file earlier finds that its id
 * is gone. */
static bool try_free(struct deferred *deferred)
{
	struct lease *l = (struct lease *)deferred;
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

dicomm_result_t lease_begin(const struct accel *accel, int index, void *memory,
			    struct lease **out)
{
	struct lease *l = calloc(1, sizeof(*l));
	uint64_t id = 0;
	int fd;

	if (!l)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory for neighbours: out of memory");
	fd = memfd_make("dicomm-lease", 0);
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
	*l = (struct lease){.deferred = {.work = accel->work,
					 .index = index,
					 .go = try_free},
			    .place = {.id = id, .pid = getpid(), .fd = fd},
			    .accel = accel,
			    .memory = memory};
	*out = l;
	return DICOMM_SUCCESS;
}

void lease_tell(const struct lease *l, struct lease_place *place)
{
	*place = l->place;
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
	const char *kind;
	int index;
	bool taken;

	if (!l)
		return true;
	/* Locks of this process do not count: this thread itself may be the one
	 * that releases them later, when it ends those ranks. */
	while ((taken = is_taken(l)) && clock_ms() < end)
		nanosleep(&nap, NULL);
	kind = l->accel->name;
	index = l->deferred.index;
	/* Memory of the user needs no driver call, so it need not wait for
	 * blocked streams. try_free() also keeps processes from taking the
	 * lease after this. */
	if ((l->memory || !try_free(&l->deferred)) &&
	    !deferred_run(&l->deferred))
		log_info("%s:%d: memory is freed later, when other processes "
			 "have unmapped it and no stream is blocked",
			 kind, index);
	return !taken;
}

/* Free memory that never had a lease. */
static bool just_free(struct deferred *deferred)
{
	struct lease *l = (struct lease *)deferred;

	l->accel->free(l->memory);
	free(l);
	return true;
}

void lease_free(const struct accel *accel, int index, void *memory)
{
	struct lease *l = calloc(1, sizeof(*l));

	if (!l) {
		log_warn("%s:%d: memory at %p stays: out of memory",
			 accel->name, index, memory);
		return;
	}
	*l = (struct lease){.deferred = {.work = accel->work,
					 .index = index,
					 .go = just_free},
			    .accel = accel,
			    .memory = memory};
	deferred_run(&l->deferred);
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
	char path[MEMFD_PATH];
	int fd;

	fd = memfd_open(place->pid, place->fd, O_RDONLY, path);
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

void lease_release(int taken)
{
	/* Unlock explicitly: a child of a fork inherits the open file, and with
	 * it the lock, though it does not use it. */
	(void)try_lock(taken, F_UNLCK, 0, 0);
	close(taken);
}
