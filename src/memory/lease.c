/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device that stays until neighbours have let go of it. */
#include "src/memory/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
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
	struct deferred deferred; /* the end of it */
	struct lease_place place;
	const struct accel *accel;
	void *memory;
};

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

/* Once it has locked all, nobody takes the lease any more; nor later, who had
 * opened it before, for then it is none. */
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
	/* Ranks of this process may be ended by this very thread, later. */
	while ((taken = is_taken(l)) && clock_ms() < end)
		nanosleep(&nap, NULL);
	kind = l->accel->name;
	index = l->deferred.index;
	/* Of its user's memory the driver is not asked, and who has not taken
	 * the lease by now is not to. */
	if ((l->memory || !try_free(&l->deferred)) &&
	    !deferred_run(&l->deferred))
		log_info("%s:%d: memory stays until neighbours have let go of "
			 "it and no stream is held",
			 kind, index);
	return !taken;
}

/* What nobody has a lease on */
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
	/* A child of a fork keeps what was opened, but has no use for it. */
	(void)try_lock(taken, F_UNLCK, 0, 0);
	close(taken);
}
