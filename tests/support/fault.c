/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

static _Atomic int left; /* calls until the one that fails; 0: not armed */
static _Atomic(const char *) failed;

void fault_arm(int n)
{
	atomic_store(&failed, NULL);
	atomic_store(&left, n);
}

const char *fault_disarm(void)
{
	atomic_store(&left, 0);
	return atomic_load(&failed);
}

static bool fails(const char *name, int error)
{
	int n = atomic_load(&left);

	while (n > 0 && !atomic_compare_exchange_weak(&left, &n, n - 1))
		;
	if (n != 1)
		return false;
	atomic_store(&failed, name);
	errno = error;
	return true;
}

/* A call with its parameters, the same by name, what failure gives, errno. */
#define WRAP(type, name, parameters, arguments, failure, error) \
	type __real_##name parameters;                          \
	type __wrap_##name parameters;                          \
	type __wrap_##name parameters                           \
	{                                                       \
		if (fails(#name, error))                        \
			return failure;                         \
		return __real_##name arguments;                 \
	}

WRAP(void *, malloc, (size_t n), (n), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), NULL, ENOMEM)
WRAP(char *, strdup, (const char *s), (s), NULL, ENOMEM)
WRAP(void *, mmap,
     (void *at, size_t n, int prot, int flags, int fd, off_t offset),
     (at, n, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1,
     EMFILE)
WRAP(int, ftruncate, (int fd, off_t len), (fd, len), -1, ENOSPC)
WRAP(int, socket, (int family, int kind, int protocol),
     (family, kind, protocol), -1, EMFILE)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t len), (fd, a, len),
     -1, EADDRINUSE)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t len),
     (fd, a, len), -1, ENETUNREACH)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *len, int flags),
     (fd, a, len, flags), -1, EMFILE)
WRAP(int, epoll_create1, (int flags), (flags), -1, EMFILE)
WRAP(ssize_t, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags),
     -1, EAGAIN)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL,
     EMFILE)
WRAP(int, getifaddrs, (struct ifaddrs * *all), (all), -1, ENOMEM)
WRAP(int, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints,
      struct addrinfo **found),
     (host, port, hints, found), EAI_MEMORY, ENOMEM)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
/* It need not set errno. */
WRAP(int, pthread_create,
     (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *arg),
     (t, a, f, arg), EAGAIN, 0)

int __wrap_asprintf(char **text, const char *format, ...);
int __wrap_asprintf(char **text, const char *format, ...)
{
	va_list args;
	int n;

	if (fails("asprintf", ENOMEM))
		return -1;
	va_start(args, format);
	n = vasprintf(text, format, args);
	va_end(args);
	return n;
}

int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	/* To change or end a watch needs nothing. */
	if (op == EPOLL_CTL_ADD && fails("epoll_ctl", ENOMEM))
		return -1;
	return __real_epoll_ctl(ep, op, fd, e);
}

int __real_fcntl(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...)
{
	va_list args;
	long arg;

	if (op == F_DUPFD_CLOEXEC && fails("fcntl", EMFILE))
		return -1;
	va_start(args, op);
	arg = va_arg(args, long);
	va_end(args);
	return __real_fcntl(fd, op, arg);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (fails("open", EMFILE))
		return -1;
	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, mode_t);
	va_end(args);
	return __real_open(path, flags, mode);
}
