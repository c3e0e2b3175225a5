/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rate of the link of each host, and islands of hosts behind a shared link,
 * derived from measured flows.
 */
#ifndef DICOMM_PERFTEST_LINKS_NETWORK_H
#define DICOMM_PERFTEST_LINKS_NETWORK_H

#include <stdbool.h>
#include <stdio.h>

/* Rates are in bytes per second, latencies in seconds. */
struct network {
	int hosts;
	/* [from * hosts + to] */
	double *latency;
	double *alone; /* while nothing else is running */
	/* While every host sends to another one and receives. */
	double *together;
	/* [host] */
	double *up, *down; /* to all others at once, from all others at once */
	double *inside;    /* between two of its ranks; 0: it has one rank */
	int *ranks;
	int *island;
	const char **name; /* borrowed */
	int islands;       /* 0: not determined */
	/* [island]: rate out of it and into it; 0: no narrower than the links
	 * of its hosts. */
	double *island_up, *island_down;
};

/* Allocates a network that is all zero. Returns false if there is no memory. */
bool network_create(struct network *n, int hosts);
void network_destroy(struct network *n);

/* Finds out which hosts share an island, from everything measured except the
 * rates of islands. Two hosts share one unless the link between them is
 * narrower than the links of both hosts, or becomes narrower when other hosts
 * are busy. */
void network_find_islands(struct network *n);
/* Returns true if the links of the hosts explain how long flows out of an
 * island, or into it, took. ways_seconds is the time that these links need. */
bool network_is_wide(double seconds, double ways_seconds);
/* Removes the islands if the link of none of them limits anything. */
void network_drop_islands(struct network *n);

/* Prints the matrices, the hosts and the islands as tables. */
void network_print(const struct network *n);
/* Writes a file that DICOMM_TOPO_FILE reads, without names if two hosts have
 * the same. Returns -1 and sets errno on failure. */
int network_save(const struct network *n, const char *path);
/* Writes a gnuplot script for a heat map of the rates. */
void network_script(const struct network *n, FILE *out, const char *path);

#endif
