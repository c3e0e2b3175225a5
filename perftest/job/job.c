/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/job/job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/base/size.h"
#include "perftest/job/ask.h"
#include "perftest/job/far.h"
#include "perftest/job/hang.h"

/* ---- communicators, each with the ranks that have answered ---- */

/* Until it is ready, nothing tells to which others it belongs. */
static json_t *find_comm(json_t *comms, json_t *said)
{
	const char *hash = json_string_value(json_object_get(said, "hash"));
	json_t *comm;
	size_t i;

	json_array_foreach(comms, i, comm)
	{
		const char *other =
			json_string_value(json_object_get(comm, "hash"));

		if (hash && other && !strcmp(hash, other))
			return comm;
	}
	comm = json_pack("{s:O, s:O?, s:O, s:[], s:[]}", "name",
			 json_object_get(said, "name"), "hash",
			 json_object_get(said, "hash"), "ranks",
			 json_object_get(said, "ranks"), "seen", "hangs");
	json_array_append_new(comms, comm);
	return comm;
}

/* In the order of ranks */
static void add_rank(json_t *seen, json_t *said)
{
	json_int_t rank = json_integer_value(json_object_get(said, "rank"));
	size_t at = json_array_size(seen);

	while (at && json_integer_value(json_object_get(
			     json_array_get(seen, at - 1), "rank")) > rank)
		at--;
	json_array_insert(seen, at, said);
}

/* What a rank says stands in the place of its communicator from here on. */
static json_t *gather(json_t *answers)
{
	json_t *comms = json_array(), *answer, *said, *comm;
	size_t i, k;

	json_array_foreach(answers, i, answer)
	{
		json_array_foreach(json_object_get(answer, "comms"), k, said)
		{
			json_object_set(said, "pid",
					json_object_get(answer, "pid"));
			json_object_set(said, "program",
					json_object_get(answer, "program"));
			json_object_set(said, "host",
					json_object_get(answer, "host"));
			add_rank(
				json_object_get(find_comm(comms, said), "seen"),
				said);
		}
	}
	json_array_foreach(comms, i, comm) hang_find(
		json_object_get(comm, "seen"), json_object_get(comm, "hangs"));
	return comms;
}

/* ---- text ---- */

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static json_int_t number_of(json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void print_call(json_t *call)
{
	char bytes[32];

	size_print(bytes, sizeof(bytes), (double)number_of(call, "bytes"));
	printf("%s number %lld", text_of(call, "call"),
	       (long long)number_of(call, "number"));
	if (number_of(call, "bytes"))
		printf(" (%s)", bytes);
}

/* What the rank does now */
static void print_doing(json_t *said)
{
	json_t *wait = json_object_get(said, "wait");
	json_t *last = json_object_get(said, "last_collective");
	json_t *other = json_object_get(wait, "for");

	printf("           ");
	if (wait && other)
		printf("waits for rank %lld (%s) for %.1f s, in ",
		       (long long)number_of(other, "rank"),
		       text_of(other, "where"),
		       (double)number_of(wait, "ms") / 1e3);
	else if (wait)
		printf("waits for %.1f s, for no rank in particular, in ",
		       (double)number_of(wait, "ms") / 1e3);
	else if (number_of(said, "begun") != number_of(said, "ended"))
		printf("in a call; ");
	else if (number_of(said, "queued"))
		printf("%lld calls queued; ",
		       (long long)number_of(said, "queued"));
	else
		printf("in no call; ");
	if (wait)
		print_call(wait);
	else if (last)
		printf("the last collective was ");
	else
		printf("no collective yet");
	if (!wait && last)
		print_call(last);
	printf("\n");
}

static void print_counters(json_t *said)
{
	static const char *const keys[] = {"bytes_sent", "bytes_received",
					   "bytes_staged"};
	char bytes[3][32];

	for (int i = 0; i < 3; i++)
		size_print(bytes[i], sizeof(bytes[i]),
			   (double)number_of(said, keys[i]));
	printf("; calls: %lld begun, %lld ended; %s sent, %s received, %s "
	       "staged",
	       (long long)number_of(said, "begun"),
	       (long long)number_of(said, "ended"), bytes[0], bytes[1],
	       bytes[2]);
	if (json_object_get(said, "retransmits"))
		printf(", %lld retransmits",
		       (long long)number_of(said, "retransmits"));
}

static void print_gone(json_t *said)
{
	json_t *gone = json_object_get(said, "gone"), *rank;
	json_int_t all = number_of(said, "gone_ranks");
	size_t i;

	if (!all)
		return;
	printf("           left or died:");
	json_array_foreach(gone, i, rank) printf(
		"%s rank %lld (%s)", i ? "," : "",
		(long long)number_of(rank, "rank"), text_of(rank, "where"));
	if (all > (json_int_t)json_array_size(gone))
		printf(" and others, %lld in all", (long long)all);
	printf("\n");
}

static void print_rank(json_t *said, bool far)
{
	const char *reason = text_of(said, "reason");

	printf("rank       %lld: ", (long long)number_of(said, "rank"));
	if (far)
		printf("%s pid %lld, ", text_of(said, "host"),
		       (long long)number_of(said, "pid"));
	else if (number_of(said, "pid"))
		printf("pid %lld, ", (long long)number_of(said, "pid"));
	else
		printf("%s, ", text_of(said, "where"));
	printf("%s, device %s, %s", text_of(said, "program"),
	       text_of(said, "device"), text_of(said, "state"));
	if (*reason)
		printf(": %s", reason);
	if (!json_object_get(said, "hash")) {
		printf("\n");
		return;
	}
	print_counters(said);
	printf("\n");
	print_doing(said);
	print_gone(said);
}

static void print_comm(json_t *comm, bool far)
{
	json_t *seen = json_object_get(comm, "seen"), *said, *hang;
	size_t i;

	printf("comm       %s%s%s: %lld ranks, %zu told%s\n",
	       text_of(comm, "name"), *text_of(comm, "hash") ? " " : "",
	       text_of(comm, "hash"), (long long)number_of(comm, "ranks"),
	       json_array_size(seen), far ? "" : " here");
	json_array_foreach(seen, i, said) print_rank(said, far);
	json_array_foreach(json_object_get(comm, "hangs"), i, hang)
		printf("hang       %s\n", json_string_value(hang));
}

static void print_silent(json_t *item, bool far)
{
	if (far)
		printf("silent     rank %lld (%s): %s\n",
		       (long long)number_of(item, "rank"),
		       text_of(item, "where"), text_of(item, "why"));
	else
		printf("silent     pid %lld, %s: %s\n",
		       (long long)number_of(item, "pid"),
		       text_of(item, "program"), text_of(item, "why"));
}

/* Where this process tells of the whole job */
static void print_port(json_t *answer, bool far)
{
	const char *port = text_of(answer, "port");

	if (*port && !far)
		printf("port       %s: pid %lld tells of the whole job to who "
		       "has its DICOMM_COMM_KEY (--job %s)\n",
		       port, (long long)number_of(answer, "pid"), port);
}

static void print_all(json_t *comms, json_t *silent, json_t *answers, bool far)
{
	json_t *item;
	size_t i;

	json_array_foreach(comms, i, item) print_comm(item, far);
	json_array_foreach(answers, i, item) if (number_of(item, "left_out"))
		printf("more       pid %lld: %lld communicators, for "
		       "which its answer had no room\n",
		       (long long)number_of(item, "pid"),
		       (long long)number_of(item, "left_out"));
	json_array_foreach(answers, i, item) print_port(item, far);
	json_array_foreach(silent, i, item) print_silent(item, far);
	if (!json_array_size(comms) && !json_array_size(silent))
		printf("comm       none: no process of this %s has one\n",
		       far ? "job" : "user");
}

/* ---- the request ---- */

static bool parse_pid(const char *text, pid_t *pid)
{
	char *end;
	long n = strtol(text, &end, 10);

	*pid = (pid_t)n;
	return end != text && !*end && n > 0 && n <= INT_MAX;
}

bool job_check(const char *whom)
{
	pid_t pid;

	return parse_pid(whom, &pid) || strchr(whom, ':');
}

bool job_show(const char *whom, json_t *json)
{
	json_t *answers = json_array(), *silent = json_array(), *comms = NULL;
	bool far = whom && strchr(whom, ':'), ok, any;
	pid_t pid = 0;

	if (whom && !far)
		parse_pid(whom, &pid);
	ok = far ? far_ask(whom, answers, silent)
		 : ask_all(pid, answers, silent);
	any = json_array_size(answers) || json_array_size(silent);
	if (ok && pid && !any) {
		fprintf(stderr,
			"dicomm-info: --job %d: it has no communicator\n",
			(int)pid);
		ok = false;
	}
	/* What was told before a failure is told here, too. */
	if (ok || any)
		comms = gather(answers);
	if (comms && json)
		json_object_set_new(json, "job",
				    json_pack("{s:O, s:O}", "comms", comms,
					      "silent", silent));
	else if (comms)
		print_all(comms, silent, answers, far);
	json_decref(comms);
	json_decref(answers);
	json_decref(silent);
	return ok;
}
