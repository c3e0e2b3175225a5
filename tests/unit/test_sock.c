/* SPDX-License-Identifier: BSD-3-Clause */
/* Where to listen, and how to get there. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/net/interface.h"
#include "src/boot/net/lent_port.h"
#include "src/boot/net/loop.h"
#include "src/boot/net/sock.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

static const struct {
	const char *spec, *name;
	bool matches;
} names[] = {
	{"", "eth0", true},
	{"", "lo", false},
	{"", "docker0", false},
	{"", "docker", false},
	{"", "ib0", true},
	{"eth", "eth0", true},
	{"eth", "ens3", false},
	{"eth0", "eth01", true}, /* a prefix */
	{"eth,ib", "ib1", true},
	{"eth,ib", "lo", false},
	{"=eth0", "eth0", true},
	{"=eth0", "eth01", false},
	{"=eth0,ib0", "ib0", true},
	{"=eth0,ib0", "ib01", false},
	{"^eth", "eth0", false},
	{"^eth", "ib0", true},
	{"^eth", "lo", false}, /* unless it is named */
	{"^eth", "docker7", false},
	{"^virbr", "lo", false},
	{"^virbr", "virbr0", false},
	{"^lo", "lo", false},
	{"docker", "docker7", true},
	{"=lo,eth0", "lo", true},
	{"^eth,docker", "docker7", false},
	{"^=eth0", "eth0", false},
	{"^=eth0", "eth01", true},
	{"lo", "lo", true},
	{",eth", "ib0", false}, /* an empty entry is no prefix of all */
	{"^", "eth0", true},
	{"eth0:1", "eth0", true}, /* NCCL's port after the name */
	{"et", "e", false},
};

START_TEST(interfaces_are_chosen_by_nccls_grammar)
{
	ck_assert_msg(interface_matches(names[_i].spec, names[_i].name) ==
			      names[_i].matches,
		      "\"%s\" and %s", names[_i].spec, names[_i].name);
}
END_TEST

static int connect_to(const char *text)
{
	struct sock_address address;
	const char *why;
	int fd, err;

	ck_assert_msg(sock_resolve(text, &address, &why), "%s: %s", text, why);
	fd = sock_create(&address);
	ck_assert_int_ge(fd, 0);
	err = sock_connect(fd, &address, clock_ns() + 2000000000u, NULL);
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}

static void check_listens(int fd, const char *text)
{
	int c = connect_to(text), a;
	char peer[SOCK_TEXT];

	ck_assert_int_ge(c, 0);
	a = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(a, 0);
	sock_peer(c, peer);
	ck_assert_str_eq(peer, text);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(c, F_GETFD), FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(c, F_GETFL) & O_NONBLOCK);
	close(a);
	close(c);
}

START_TEST(a_listener_can_be_reached_by_its_text)
{
	char text[SOCK_TEXT];
	int fd;

	setenv("DICOMM_SOCKET_IFNAME", "=lo", 1);
	if (_i)
		setenv("DICOMM_SOCKET_FAMILY", "AF_INET6", 1);
	if (_i && access("/proc/net/if_inet6", F_OK))
		return; /* no IPv6 here */
	ck_assert_int_eq(sock_listen(&fd, text), DICOMM_SUCCESS);
	ck_assert_int_eq(strncmp(text, _i ? "[::1]:" : "127.0.0.1:", 6), 0);
	check_listens(fd, text);
	close(fd);
}
END_TEST

START_TEST(ports_come_from_the_range)
{
	int fd[4], port;
	char text[SOCK_TEXT], range[32];
	bool seen[3] = {0};

	setenv("DICOMM_SOCKET_IFNAME", "=lo", 1);
	/* Below the ephemeral ports, where nobody comes by chance. */
	port = 24000 + (int)getpid() % 6000;
	snprintf(range, sizeof(range), "%d-%d", port, port + 2);
	setenv("DICOMM_PORT_RANGE", range, 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(sock_listen(&fd[i], text), DICOMM_SUCCESS);
		ck_assert_int_ge(atoi(strrchr(text, ':') + 1), port);
		ck_assert_int_le(atoi(strrchr(text, ':') + 1), port + 2);
		seen[atoi(strrchr(text, ':') + 1) - port] = true;
		check_listens(fd[i], text);
	}
	ck_assert(seen[0] && seen[1] && seen[2]);
	ck_assert_int_eq(sock_listen(&fd[3], text), DICOMM_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(log_last_error(), range));
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}
END_TEST

static int lent = -1;

static void close_lent(void)
{
	close(lent);
	lent = -1;
}

/* A range of one port */
START_TEST(the_last_port_is_the_one_that_this_process_lends)
{
	char text[SOCK_TEXT], range[32];
	int port = 24000 + (int)getpid() % 6000, offer, fd;

	setenv("DICOMM_SOCKET_IFNAME", "=lo", 1);
	snprintf(range, sizeof(range), "%d-%d", port, port);
	setenv("DICOMM_PORT_RANGE", range, 1);
	ck_assert_int_eq(sock_listen(&lent, text), DICOMM_SUCCESS);
	loop_lock();
	offer = lent_port_offer((unsigned)port, close_lent);
	ck_assert_int_ge(offer, 0);
	if (_i)
		ck_assert_int_eq(sock_listen_locked(&fd, text), DICOMM_SUCCESS);
	loop_unlock();
	if (!_i)
		ck_assert_int_eq(sock_listen(&fd, text), DICOMM_SUCCESS);
	ck_assert_int_eq(lent, -1);
	check_listens(fd, text);
	/* It had but one. */
	ck_assert_int_eq(sock_listen(&lent, text), DICOMM_ERR_SYSTEM);
	close(offer);
	close(fd);
}
END_TEST

/* It is named. */
START_TEST(a_lender_that_does_not_answer_keeps_its_port)
{
	char text[SOCK_TEXT], words[64];
	int port = 24000 + (int)getpid() % 6000, fd, pipes[2];
	pid_t child;

	snprintf(text, sizeof(text), "127.0.0.1:%d", port);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		if (sock_listen_at(text, 0, &fd) != DICOMM_SUCCESS ||
		    lent_port_offer((unsigned)port, close_lent) < 0 ||
		    write(pipes[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(pipes[0], words, 1), 1);
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_ERR_SYSTEM);
	snprintf(words, sizeof(words), ": pid %d has it", (int)child);
	ck_assert_msg(strstr(log_last_error(), words), "%s", log_last_error());
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
END_TEST

START_TEST(no_such_interface_is_an_error_with_a_list)
{
	char text[SOCK_TEXT];
	int fd;

	setenv("DICOMM_SOCKET_IFNAME", "nosuch", 1);
	ck_assert_int_eq(sock_listen(&fd, text), DICOMM_ERR_INVALID_USAGE);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "\"nosuch\""));
	ck_assert_ptr_nonnull(strstr(log_last_error(), " lo"));
}
END_TEST

START_TEST(without_a_setting_some_interface_is_found)
{
	char text[SOCK_TEXT];
	int fd;

	unsetenv("DICOMM_SOCKET_IFNAME");
	ck_assert_int_eq(sock_listen(&fd, text), DICOMM_SUCCESS);
	close(fd);
}
END_TEST

static const char *const good[] = {"localhost:7", "1.2.3.4:65535", "[::1]:1",
				   "a-b.c:29500"};
static const char *const bad[] = {"",
				  "host",
				  "host:",
				  ":1",
				  "host:0",
				  "host:65536",
				  "host:1x",
				  "host:-1",
				  "host: 1",
				  "::1:5",
				  "[::1:5",
				  "[]:5",
				  "host:99999999999999999999"};

START_TEST(a_place_is_host_and_port)
{
	char text[400];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		ck_assert_int_eq(sock_check(good[i]), DICOMM_SUCCESS);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(sock_check(bad[i]) == DICOMM_ERR_INVALID_ARGUMENT,
			      "\"%s\"", bad[i]);
	memset(text, 'h', sizeof(text));
	snprintf(text + 255, 50, ":65535");
	ck_assert_int_eq(sock_check(text), DICOMM_SUCCESS);
	memset(text, 'h', 300);
	snprintf(text + 258, 50, ":65535");
	ck_assert_int_eq(sock_check(text), DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

/* Below the ephemeral ports, where nobody comes by chance. */
static int a_port(void)
{
	return 24000 + (int)getpid() % 6000;
}

START_TEST(listening_at_a_place)
{
	char text[SOCK_TEXT];
	int fd, second;

	snprintf(text, sizeof(text), "%s:%d", _i ? "127.0.0.1" : "localhost",
		 a_port());
	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_SUCCESS);
	close(connect_to(text));
	/* Taken: an error that names it. */
	ck_assert_int_eq(sock_listen_at(text, 0, &second), DICOMM_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(log_last_error(), text));
	close(fd);
	/* Free again at once, though connections of before linger. */
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_SUCCESS);
	close(fd);
	ck_assert_int_eq(connect_to(text), -1);
	ck_assert_int_eq(errno, ECONNREFUSED);
}
END_TEST

static void *give_back(void *arg)
{
	usleep(300000);
	close(*(int *)arg);
	return NULL;
}

START_TEST(a_port_that_is_given_back_is_taken)
{
	char text[SOCK_TEXT];
	pthread_t t;
	int fd, second;

	snprintf(text, sizeof(text), "127.0.0.1:%d", a_port());
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_SUCCESS);
	pthread_create(&t, NULL, give_back, &fd);
	ck_assert_int_eq(
		sock_listen_at(text, clock_ns() + 30000000000u, &second),
		DICOMM_SUCCESS);
	pthread_join(t, NULL);
	check_listens(second, text);
	close(second);
}
END_TEST

/* 192.0.2.0/24 and .invalid are nobody's. */
static const char *const elsewhere[] = {"192.0.2.7", "no-such-name.invalid",
					"0.0.0.0"};

START_TEST(of_a_place_that_is_not_here_the_port_is_enough)
{
	char text[SOCK_TEXT], own[SOCK_TEXT];
	int fd;

	if (_i % 2)
		setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	snprintf(text, sizeof(text), "%s:%d", elsewhere[_i / 2], a_port());
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_SUCCESS);
	sock_own(fd, own);
	ck_assert(sock_is_loopback(own));
	check_listens(fd, own);
	snprintf(own, sizeof(own), "127.0.0.1%s", strrchr(text, ':'));
	check_listens(fd, own);
	close(fd);
}
END_TEST

/* By chance the kernel does so with a socket that has no port yet. */
START_TEST(who_connects_to_itself_has_found_nobody)
{
	struct sock_address address;
	char text[SOCK_TEXT];
	const char *why;
	int fd;

	if (_i && access("/proc/net/if_inet6", F_OK))
		return; /* no IPv6 here */
	ck_assert(sock_resolve(_i ? "[::1]:1" : "127.0.0.1:1", &address, &why));
	if (_i)
		((struct sockaddr_in6 *)&address.storage)->sin6_port = 0;
	else
		((struct sockaddr_in *)&address.storage)->sin_port = 0;
	fd = sock_create(&address);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(
		bind(fd, (struct sockaddr *)&address.storage, address.len), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address.storage,
				     &address.len),
			 0);
	sock_own(fd, text);
	ck_assert_int_eq(
		sock_connect(fd, &address, clock_ns() + 2000000000u, NULL),
		ECONNREFUSED);
	/* As all connections are closed */
	shutdown(fd, SHUT_RDWR);
	close(fd);
	/* And has not taken the place of who comes to listen there. */
	ck_assert_int_eq(sock_listen_at(text, 0, &fd), DICOMM_SUCCESS);
	close(fd);
}
END_TEST

/* A listener whose backlog is full: connecting waits for ever. */
START_TEST(connecting_is_bounded_and_can_be_cancelled)
{
	_Atomic bool cancelled = _i == 1;
	struct sock_address address = {.len = sizeof(address.storage)};
	uint64_t begin, took_ms;
	int fd, full[8], c, err;
	char text[SOCK_TEXT];
	const char *why;

	setenv("DICOMM_SOCKET_IFNAME", "=lo", 1);
	ck_assert_int_eq(sock_listen(&fd, text), DICOMM_SUCCESS);
	ck_assert(sock_resolve(text, &address, &why));
	ck_assert_int_eq(listen(fd, 0), 0);
	for (int i = 0; i < 8; i++) {
		full[i] = sock_create(&address);
		sock_connect(full[i], &address, clock_ns() + 1000000u, NULL);
	}
	c = sock_create(&address);
	begin = clock_ms();
	err = sock_connect(c, &address, clock_ns() + 300000000u, &cancelled);
	took_ms = clock_ms() - begin;
	ck_assert_int_eq(err, _i ? ECANCELED : ETIMEDOUT);
	ck_assert_uint_lt(took_ms, 5000 + starved_ms());
	if (!_i)
		ck_assert_uint_ge(took_ms, 300);
	for (int i = 0; i < 8; i++)
		close(full[i]);
	close(c);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sock");
	TCase *tcase = tcase_create("sock");

	setenv("DICOMM_DEBUG", "none", 1);
	tcase_add_loop_test(tcase, interfaces_are_chosen_by_nccls_grammar, 0,
			    (int)(sizeof(names) / sizeof(*names)));
	tcase_add_loop_test(tcase, a_listener_can_be_reached_by_its_text, 0, 2);
	tcase_add_test(tcase, ports_come_from_the_range);
	tcase_add_loop_test(
		tcase, the_last_port_is_the_one_that_this_process_lends, 0, 2);
	tcase_add_test(tcase, a_lender_that_does_not_answer_keeps_its_port);
	tcase_add_test(tcase, no_such_interface_is_an_error_with_a_list);
	tcase_add_test(tcase, without_a_setting_some_interface_is_found);
	tcase_add_test(tcase, a_place_is_host_and_port);
	tcase_add_loop_test(tcase, listening_at_a_place, 0, 2);
	tcase_add_test(tcase, a_port_that_is_given_back_is_taken);
	tcase_add_loop_test(
		tcase, of_a_place_that_is_not_here_the_port_is_enough, 0, 6);
	tcase_add_loop_test(tcase, who_connects_to_itself_has_found_nobody, 0,
			    2);
	tcase_add_loop_test(tcase, connecting_is_bounded_and_can_be_cancelled,
			    0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
