/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP sockets of a worker that is given up. UCX does not close them then,
 * and who is connecting to it, or will, would wait for an answer for long. UCX
 * does not name them either; but a worker says what it sleeps on, and where it
 * listens.
 */
#include "transports/ucx/ucx.h"
#include "src/base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The worker sleeps on its interfaces, and those on their connections. */
#define DEPTH 2
/* At a time. */
#define SOCKETS 1024

static ino_t inode_of(int fd)
{
	struct stat s;

	return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

/* The local port, in the order of the network; 0: it is not of TCP. */
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

/* Those of TCP that listen at any port, or that were accepted at this one;
 * returns how many there are. */
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

/* Two bytes somewhere in the address, which only UCX can read. */
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
	/* Rather none than somebody else's. */
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

/* What the descriptor was, UCX still takes for its own: it stays taken. */
static void replace(int fd, int nothing)
{
	dup3(nothing, fd, O_CLOEXEC);
}

/* What is in that set, if it is one. */
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

/* Those that it sleeps on. */
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

/* A worker without endpoints of its own sleeps on none. */
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
