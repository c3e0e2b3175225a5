/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A profiler for ranges.sh: what NVTX loads for NVTX_INJECTION64_PATH, against
 * its own headers. Writes a line for each beginning and end of a range into a
 * file for each process, RANGES_OUT with its number.
 */
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *out;
static _Atomic uint64_t ranges;

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
	fprintf(out, "domain %s\n", name);
	return (nvtxDomainHandle_t)&ranges;
}

static nvtxRangeId_t NVTX_API begin(nvtxDomainHandle_t domain,
				    const nvtxEventAttributes_t *a)
{
	nvtxRangeId_t id = ++ranges;
	int right = domain == (nvtxDomainHandle_t)&ranges &&
		    a->size == sizeof(*a) &&
		    a->messageType == NVTX_MESSAGE_TYPE_ASCII &&
		    a->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;

	if (!right)
		fprintf(out, "wrong attributes\n");
	else
		fprintf(out, "begin %" PRIu64 " %s %" PRIu64 "\n", id,
			a->message.ascii, a->payload.ullValue);
	return id;
}

static void NVTX_API end(nvtxDomainHandle_t domain, nvtxRangeId_t id)
{
	(void)domain;
	fprintf(out, "end %" PRIu64 "\n", id);
}

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
	const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table;
	char path[4096];
	unsigned n;

	snprintf(path, sizeof(path), "%s.%d", getenv("RANGES_OUT"),
		 (int)getpid());
	out = fopen(path, "w");
	if (!out || !callbacks ||
	    !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table,
					       &n) ||
	    n <= NVTX_CBID_CORE2_DomainCreateA)
		return 0;
	*table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	*table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)begin;
	*table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
	return 1;
}
