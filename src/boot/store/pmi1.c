/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PMI-1, the line protocol of MPICH's mpiexec (hydra) on the socket PMI_FD.
 * Rank 0 puts the id, all ranks pass a barrier, and the others get the id.
 *
 * The process may also use MPI, before or after. So this store sends "init"
 * every time, which hydra allows. It sends "finalize" only when the process
 * ends, because hydra then closes the socket. Without "finalize", hydra would
 * assume that the process was killed, and kill the others.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/store/launcher.h"

#define LINE 2048
#define NAME 256
#define FINALIZE_MS 2000

static struct {
	pthread_mutex_t lock;
	struct stat identity; /* of the socket; descriptors are reused */
	pid_t pid;            /* the process that must finalize; 0: none */
	int ids_made;         /* each id has its own key */
} pmi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool pmi1_present(void)
{
	struct stat s;
	int fd = store_number_or_none("PMI_FD");

	return fd >= 0 && getenv("PMI_RANK") && getenv("PMI_SIZE") &&
	       !fstat(fd, &s) && S_ISSOCK(s.st_mode);
}

static dicomm_result_t send_line(int fd, const char *line)
{
	size_t len = strlen(line);
	ssize_t n;

	/* Lines are much shorter than the buffer of a socket. */
	do
		n = send(fd, line, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)len)
		return DICOMM_SUCCESS;
	return FAIL(errno == EPIPE ? DICOMM_ERR_REMOTE : DICOMM_ERR_SYSTEM,
		    "PMI: send to mpiexec: %m");
}

/* Reads one character at a time, because the bytes after the line may be for
 * the MPI library of this process. */
static dicomm_result_t receive_line(int fd, char line[LINE], uint64_t until_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n;

	while (len < LINE - 1) {
		uint64_t now = clock_ns();

		if (now >= until_ns)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "PMI: no answer of mpiexec within the "
				    "bootstrap time");
		if (poll(&p, 1, (int)((until_ns - now) / 1000000u) + 1) <= 0)
			continue;
		n = recv(fd, line + len, 1, MSG_DONTWAIT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0 && errno != ECONNRESET)
			return FAIL(DICOMM_ERR_SYSTEM,
				    "PMI: receive from mpiexec: %m");
		if (n <= 0)
			return FAIL(DICOMM_ERR_REMOTE,
				    "PMI: mpiexec closed the connection");
		if (line[len] == '\n') {
			line[len] = '\0';
			return DICOMM_SUCCESS;
		}
		len++;
	}
	return FAIL(DICOMM_ERR_SYSTEM, "PMI: a line of mpiexec is too long");
}

/* Finds the value of key in "cmd=x key=value ...". Returns false if the key is
 * missing or the value does not fit. */
static bool value_of(const char *line, const char *key, char *value, size_t len)
{
	size_t key_len = strlen(key), n;

	for (; *line; line += strcspn(line, " "), line += strspn(line, " ")) {
		if (strncmp(line, key, key_len) || line[key_len] != '=')
			continue;
		line += key_len + 1;
		n = strcspn(line, " ");
		if (n >= len)
			return false;
		memcpy(value, line, n);
		value[n] = '\0';
		return true;
	}
	return false;
}

/* Sends a question and receives the answer, which must be of this kind and
 * without an error. */
static dicomm_result_t ask(int fd, uint64_t until_ns, const char *question,
			   const char *kind, char line[LINE])
{
	char cmd[NAME], rc[NAME];

	TRY(send_line(fd, question));
	TRY(receive_line(fd, line, until_ns));
	if (!value_of(line, "cmd", cmd, sizeof(cmd)) || strcmp(cmd, kind) ||
	    (value_of(line, "rc", rc, sizeof(rc)) && strcmp(rc, "0")))
		return FAIL(DICOMM_ERR_SYSTEM,
			    "PMI: mpiexec answered \"%.100s\", wanted %s", line,
			    kind);
	return DICOMM_SUCCESS;
}

static void finalize_at_exit(void)
{
	uint64_t until_ns = clock_ns() + FINALIZE_MS * UINT64_C(1000000);
	int fd = store_number_or_none("PMI_FD");
	char line[LINE];
	struct stat s;

	/* MPI may have finalized already, and the descriptor may be another
	 * file now. */
	if (pmi.pid != getpid() || fd < 0 || fstat(fd, &s) ||
	    s.st_dev != pmi.identity.st_dev || s.st_ino != pmi.identity.st_ino)
		return;
	if (send_line(fd, "cmd=finalize\n") == DICOMM_SUCCESS)
		receive_line(fd, line, until_ns);
}

static dicomm_result_t exchange(struct launcher_info *info, int fd)
{
	uint64_t until_ns = clock_ns() + (uint64_t)launcher_patience_s() *
						 UINT64_C(1000000000);
	char line[LINE], question[LINE], space[NAME];
	int number = pmi.ids_made++;

	TRY(ask(fd, until_ns, "cmd=init pmi_version=1 pmi_subversion=1\n",
		"response_to_init", line));
	if (!pmi.pid) {
		fstat(fd, &pmi.identity);
		pmi.pid = getpid();
		atexit(finalize_at_exit);
	}
	TRY(ask(fd, until_ns, "cmd=get_my_kvsname\n", "my_kvsname", line));
	if (!value_of(line, "kvsname", space, sizeof(space)))
		return FAIL(DICOMM_ERR_SYSTEM,
			    "PMI: mpiexec answered \"%.100s\", wanted a "
			    "kvsname",
			    line);
	if (info->rank == 0) {
		snprintf(question, sizeof(question),
			 "cmd=put kvsname=%s key=dicomm-id-%d value=%s\n",
			 space, number, info->id.text);
		TRY(ask(fd, until_ns, question, "put_result", line));
	}
	TRY(ask(fd, until_ns, "cmd=barrier_in\n", "barrier_out", line));
	if (info->rank == 0)
		return DICOMM_SUCCESS;
	snprintf(question, sizeof(question),
		 "cmd=get kvsname=%s key=dicomm-id-%d\n", space, number);
	TRY(ask(fd, until_ns, question, "get_result", line));
	if (!value_of(line, "value", info->id.text, sizeof(info->id.text)))
		return FAIL(DICOMM_ERR_SYSTEM,
			    "PMI: mpiexec has no id of rank 0");
	return DICOMM_SUCCESS;
}

static dicomm_result_t pmi1_get(struct launcher_info *info)
{
	int fd = store_number_or_none("PMI_FD");
	dicomm_result_t status;

	info->ranks_from = "PMI_SIZE";
	TRY(store_number(info->ranks_from, 1, 1 << 20, &info->ranks));
	TRY(store_number("PMI_RANK", 0, info->ranks - 1, &info->rank));
	TRY(store_make_id(info));
	pthread_mutex_lock(&pmi.lock);
	status = exchange(info, fd);
	pthread_mutex_unlock(&pmi.lock);
	return status;
}

const struct store store_pmi1 = {
	.name = "PMI-1",
	.needs = "PMI_FD, PMI_RANK and PMI_SIZE (MPICH's mpiexec)",
	.present = pmi1_present,
	.get = pmi1_get,
};
