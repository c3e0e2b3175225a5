/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, addresses, ports and interfaces of this host. */
#include "perftest/doctor/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dicomm.h"
#include "perftest/doctor/doctor.h"

#define PORTS_PER_RANK 2
/* From this rate on, frames of 1500 bytes cost more than they need. */
#define FAST_MBIT_PER_S 10000

/* ---- names ---- */

const char *network_resolve(const char *host, struct addrinfo **found)
{
	static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	const struct timespec timeout = {.tv_sec = NETWORK_TIMEOUT_S};
	struct gaicb *r = calloc(1, sizeof(*r) + strlen(host) + 1);
	int status;

	if (!r)
		return "out of memory";
	strcpy((char *)(r + 1), host);
	r->ar_name = (const char *)(r + 1);
	r->ar_request = &hints;
	status = getaddrinfo_a(GAI_NOWAIT, &r, 1, NULL);
	if (!status) {
		gai_suspend((const struct gaicb *const *)&r, 1, &timeout);
		status = gai_error(r);
	}
	/* It goes on, with what it was given, until the process ends. */
	if (status == EAI_INPROGRESS)
		return "no answer of a name server in 5 s";
	*found = r->ar_result;
	free(r);
	return status ? gai_strerror(status) : NULL;
}

void network_text(const void *address, char text[NETWORK_TEXT])
{
	const struct sockaddr_in *v4 = address;
	const struct sockaddr_in6 *v6 = address;
	bool mapped = v6->sin6_family == AF_INET6 &&
		      IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);

	text[0] = '\0';
	if (v4->sin_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, text, NETWORK_TEXT);
	else if (mapped)
		inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text,
			  NETWORK_TEXT);
	else if (v6->sin6_family == AF_INET6)
		inet_ntop(AF_INET6, &v6->sin6_addr, text, NETWORK_TEXT);
}

static bool is_loopback(const char *text)
{
	return !strncmp(text, "127.", 4) || !strcmp(text, "::1");
}

static void host_name(struct doctor *d)
{
	char name[NI_MAXHOST] = "", text[NETWORK_TEXT] = "";
	struct addrinfo *found;
	bool away = false;
	const char *why;

	gethostname(name, sizeof(name) - 1);
	why = network_resolve(name, &found);
	if (why) {
		doctor_tell(d, VERDICT_WARN, "%s: %s", name, why);
		return;
	}
	for (struct addrinfo *a = found; a && !away; a = a->ai_next) {
		network_text(a->ai_addr, text);
		away = !is_loopback(text);
	}
	freeaddrinfo(found);
	doctor_tell(d, away ? VERDICT_OK : VERDICT_WARN, "%s is %s%s", name,
		    text, away ? "" : ", which is this host only");
}

/* ---- address and ports ---- */

static void address(struct doctor *d)
{
	dicomm_network_info_t n;
	bool loopback;

	if (dicomm_network_info(&n) != DICOMM_SUCCESS) {
		doctor_tell(d, VERDICT_BAD, "%s", dicomm_get_last_error(NULL));
		return;
	}
	loopback = is_loopback(n.address);
	doctor_tell(d, loopback ? VERDICT_WARN : VERDICT_OK, "%s of %s%s",
		    n.address, n.interface,
		    loopback ? ", which is this host only" : "");
}

/* Returns false if any port will do. */
static bool port_range(unsigned *first, unsigned *last)
{
	const char *range = doctor_param("DICOMM_PORT_RANGE");

	return sscanf(range, "%u-%u", first, last) == 2;
}

/* Listens at this port of both families, or of IPv4 where there is no other. */
static int listen_at(unsigned port)
{
	const struct sockaddr_in v4 = {.sin_family = AF_INET,
				       .sin_port = htons((uint16_t)port)};
	const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
					.sin6_port = htons((uint16_t)port)};
	const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
	const int on = 1, off = 0;
	int fd = socket(AF_INET6, type, 0), err;
	bool both = fd >= 0;

	if (!both)
		fd = socket(AF_INET, type, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, both ? (const void *)&v6 : (const void *)&v4,
		  both ? sizeof(v6) : sizeof(v4)) &&
	    !listen(fd, 8))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

int network_listen(unsigned port)
{
	unsigned first = 0, last = 0;
	int fd = -1;

	if (port || !port_range(&first, &last))
		return listen_at(port);
	for (port = first; port <= last && fd < 0; port++)
		fd = listen_at(port);
	return fd;
}

static void ports(struct doctor *d)
{
	unsigned first, last, bound = 0;
	int ranks = doctor_ranks_here(d), err = 0;
	char line[DOCTOR_LINE];
	enum verdict verdict = VERDICT_OK;

	if (!port_range(&first, &last)) {
		if (!doctor_read(d, line,
				 "/proc/sys/net/ipv4/ip_local_port_range") ||
		    sscanf(line, "%u %u", &first, &last) != 2)
			doctor_tell(d, VERDICT_UNKNOWN, "not known");
		else
			doctor_tell(d, VERDICT_OK, "any of %u-%u", first, last);
		return;
	}
	for (unsigned port = first; port <= last; port++) {
		int fd = listen_at(port);

		bound += fd >= 0;
		err = fd < 0 ? errno : err;
		if (fd >= 0)
			close(fd);
	}
	if (bound < (unsigned)ranks * PORTS_PER_RANK)
		verdict = bound ? VERDICT_WARN : VERDICT_BAD;
	doctor_tell(d, verdict, "%u of %u-%u can be bound%s%s; for %d ranks",
		    bound, first, last, err ? ", others: " : "",
		    err ? strerror(err) : "", ranks);
}

/* ---- interfaces ---- */

static void tell_mtu(struct doctor *d, const char *path, void *told)
{
	char line[DOCTOR_LINE];
	int bytes, rate = 0;

	if (!doctor_read(d, line, "%s/operstate", path) || strcmp(line, "up") ||
	    !doctor_read(d, line, "%s/mtu", path))
		return;
	bytes = atoi(line);
	/* A virtual interface has none, or -1. */
	if (doctor_read(d, line, "%s/speed", path))
		rate = atoi(line);
	snprintf(line, sizeof(line), ", %d Gbit/s", rate / 1000);
	doctor_tell(d,
		    bytes < 1500 || (rate >= FAST_MBIT_PER_S && bytes < 4000)
			    ? VERDICT_WARN
			    : VERDICT_OK,
		    "%s: %d%s", strrchr(path, '/') + 1, bytes,
		    rate >= 1000 ? line : "");
	*(bool *)told = true;
}

static void mtu(struct doctor *d)
{
	bool told = false;

	doctor_each(d, "/sys/class/net/*", tell_mtu, &told);
	if (!told)
		doctor_tell(d, VERDICT_UNKNOWN,
			    "not known: no interface is up");
}

const struct check network_checks[] = {
	{"ports", "2 for each rank of this host",
	 "a wider DICOMM_PORT_RANGE, which the firewall lets pass", ports},
	{"address", "an interface that other hosts reach",
	 "DICOMM_SOCKET_IFNAME=NAME, DICOMM_SOCKET_FAMILY=AF_INET or AF_INET6",
	 address},
	{"host name", "an address that other hosts reach",
	 "an entry in DNS or /etc/hosts other than 127.0.1.1; or give "
	 "launchers "
	 "the address",
	 host_name},
	{"mtu", "1500 or more; from 10 Gbit/s on 9000, if all switches pass it",
	 "ip link set dev NAME mtu 9000, on all hosts alike", mtu},
	{NULL, NULL, NULL, NULL},
};
