/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP sockets of a worker that is abandoned. UCX does not close them then,
 * and a peer that connects to them would wait long for an answer. UCX does not
 * list its sockets. But the worker has an epoll set, which contains its
 * connections, and its listener can be found by its port. */
#include "transports/ucx/sockets.h"
#include "src/base/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transports/ucx/device.h"

/* The set of the worker contains the sets of its interfaces, and these the
 * sockets. */
#define DEPTH 2
/* looked at, at most */
#define SOCKETS 1024

static ino_t inode_of(int fd)
{
	struct stat s;

	return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* The local port in network byte order; 0: it is no TCP socket. */
static in_port_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at = {.any.sa_family = AF_UNSPEC};
	socklen_t len = sizeof(at), size = sizeof(int);
	int type = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) ||
	    type != SOCK_STREAM || getsockname(fd, &at.any, &len))
		return 0;
	if (at.any.sa_family == AF_INET)
		return at.v4.sin_port;
	return at.any.sa_family == AF_INET6 ? at.v6.sin6_port : 0;
}

static bool listens(int fd)
{
	socklen_t size = sizeof(int);
	int is = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &size) == 0 && is;
}

/* port 0: TCP sockets that listen. Else: those accepted at that port. Returns
 * how many there are, which may be more than `most`. */
static size_t list_sockets(struct ucx_socket *out, size_t most, in_port_t port)
{
	DIR *dir = descriptors_opendir("/proc/self/fd");
	struct dirent *e;
	size_t n = 0;

	while (dir && (e = readdir(dir))) {
		int fd = atoi(e->d_name);
		in_port_t own = *e->d_name == '.' ? 0 : port_of(fd);

		if (!own || (port ? own != port : !listens(fd)))
			continue;
		if (n < most)
			out[n] = (struct ucx_socket){fd, inode_of(fd)};
		n++;
	}
	if (dir)
		closedir(dir);
	return n;
}

void ucx_sockets_before(struct ucx_sockets *before)
{
	before->n = list_sockets(before->list, UCX_LISTENERS, 0);
}

static bool is_in(const struct ucx_sockets *s, const struct ucx_socket *one)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].fd == one->fd && s->list[i].inode == one->inode)
			return true;
	return false;
}

/* Is the port somewhere in the worker's address? Only UCX can read its
 * format. */
static bool has_port(const struct tp_device *dev, in_port_t port)
{
	return memmem(dev->worker_address, dev->worker_address_len, &port,
		      sizeof(port)) != NULL;
}

void ucx_sockets_find(struct tp_device *dev, const struct ucx_sockets *before)
{
	struct ucx_socket found = {0};
	struct ucx_sockets now;
	int n = 0;

	now.n = list_sockets(now.list, UCX_LISTENERS, 0);
	/* If in doubt, find none: it may be another library's socket. */
	if (before->n > UCX_LISTENERS || now.n > UCX_LISTENERS)
		return;
	for (size_t i = 0; i < now.n; i++)
		if (!is_in(before, &now.list[i]) &&
		    has_port(dev, port_of(now.list[i].fd))) {
			found = now.list[i];
			n++;
		}
	if (n == 1)
		dev->listener = found;
}

/* Put /dev/null in its place: UCX still takes the number for its socket. */
static void replace(int fd, int nothing)
{
	dup3(nothing, fd, O_CLOEXEC);
}

/* The descriptors in that epoll set; 0 if it is none. */
static size_t list_set(int set, int fds[SOCKETS])
{
	char path[40], line[256];
	size_t n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", set);
	file = descriptors_fopen(path);
	while (file && n < SOCKETS && fgets(line, sizeof(line), file))
		n += sscanf(line, "tfd: %d", &fds[n]) == 1;
	if (file)
		fclose(file);
	return n;
}

/* Close the sockets in that set, and in the sets in it. */
static void close_set(int set, int depth, int nothing)
{
	int *fds = malloc(SOCKETS * sizeof(*fds));
	size_t n = fds ? list_set(set, fds) : 0;

	for (size_t i = 0; i < n; i++)
		if (inode_of(fds[i]))
			replace(fds[i], nothing);
		else if (depth)
			close_set(fds[i], depth - 1, nothing);
	free(fds);
}

/* Connections that peers have made are in no set until UCX uses them. */
static void close_accepted(in_port_t port, int nothing)
{
	struct ucx_socket *list = malloc(SOCKETS * sizeof(*list));
	size_t n = list ? list_sockets(list, SOCKETS, port) : 0;

	for (size_t i = 0; i < n && i < SOCKETS; i++)
		replace(list[i].fd, nothing);
	free(list);
}

void ucx_sockets_close(struct tp_device *dev)
{
	in_port_t port = 0;
	int nothing;

	if (dev->sockets_closed)
		return;
	dev->sockets_closed = true;
	nothing = descriptors_high(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (nothing < 0)
		return;
	if (dev->listener.inode &&
	    inode_of(dev->listener.fd) == dev->listener.inode)
		port = port_of(dev->listener.fd);
	if (port) {
		replace(dev->listener.fd, nothing);
		close_accepted(port, nothing);
	}
	close_set(dev->efd, DEPTH, nothing);
	close(nothing);
}

int ucx_try_files(void)
{
	int fds[UCX_FILES], n = 0, error = 0;

	while (n < UCX_FILES && !error) {
		fds[n] = descriptors_high(
			open("/dev/null", O_RDONLY | O_CLOEXEC));
		error = fds[n] < 0 ? errno : 0;
		n += !error;
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
	errno = error;
	return n;
}

const char *ucx_find_cause(char *text, size_t len)
{
	static const char *const names[] = {"UCX_TLS", "UCX_NET_DEVICES"};
	int left = ucx_try_files();
	size_t n = 0;

	*text = '\0';
	if (left < UCX_FILES) {
		snprintf(text, len, "; room for %d more files: %s (ulimit -n)",
			 left, strerror(errno));
		return text;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i]) && n < len)
			n += (size_t)snprintf(text + n, len - n, "; %s is %s",
					      names[i], getenv(names[i]));
	return text;
}
