/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What NVRTC makes of the kernels, for assembler.sh: `nvrtc FOLDER OLDEST`
 * writes ptx_MODULE.ptx for each architecture that it knows from that one on,
 * 75 for sm_75, into FOLDER/75 and so on, by the options that the backend of
 * CUDA compiles with. All modules for the oldest and the newest, of the others
 * float32, or all with DICOMM_TEST_LONG.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "src/accel/launch/rtc.h"

/* Any */
#define CUDA_MAJOR 99

static struct rtc rtc;

static int write_ptx(const char *folder, int arch, enum launch_module m)
{
	char why[256] = "", path[4096];
	char *text = rtc_cuda(&rtc, m, arch, true, why, sizeof(why));
	FILE *file;
	int bad;

	snprintf(path, sizeof(path), "%s/%d/ptx_%s.ptx", folder, arch,
		 launch_module_name(m));
	file = text ? fopen(path, "w") : NULL;
	bad = !file || fputs(text, file) < 0;
	if (file && fclose(file))
		bad = 1;
	if (bad)
		printf("not ok %s: %s\n", path, text ? "cannot write" : why);
	free(text);
	return bad;
}

static int write_arch(const char *folder, int arch, bool all)
{
	char path[4096];
	int bad = 0;

	snprintf(path, sizeof(path), "%s/%d", folder, arch);
	mkdir(path, 0777);
	for (int m = 0; m < LAUNCH_MODULES; m++)
		if (all || m == LAUNCH_F32)
			bad |= write_ptx(folder, arch, (enum launch_module)m);
	return bad;
}

int main(int argc, char **argv)
{
	int oldest = argc == 3 ? atoi(argv[2]) : 0, bad = 0, newest, arch;
	char why[256] = "";
	size_t next = 0;

	if (oldest < 1) {
		fprintf(stderr, "usage: %s FOLDER OLDEST\n", argv[0]);
		return 2;
	}
	if (!rtc_open_nvrtc(&rtc, CUDA_MAJOR, &next, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		return 77;
	}
	newest = rtc_newest(&rtc, 9999);
	for (arch = oldest; arch <= newest; arch++)
		if (rtc_newest(&rtc, arch) == arch)
			break;
	oldest = arch;
	for (arch = newest; arch >= oldest; arch = rtc_newest(&rtc, arch - 1)) {
		bool all = arch == oldest || arch == newest ||
			   getenv("DICOMM_TEST_LONG");

		bad |= write_arch(argv[1], arch, all);
	}
	printf("%s\n", rtc.name);
	return bad;
}
