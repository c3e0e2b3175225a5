/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters. A key is a name of the library's, DICOMM_X, or NCCL_X for what
 * means the same there; a handle is its place in the list of the library.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compat/nccl/other.h"
#include "compat/nccl/say.h"

#define PARAMS 256

static bool get(int index, dicomm_param_info_t *info)
{
	nccl_look_around();
	return index >= 0 && dicomm_param_info(index, info) == DICOMM_SUCCESS;
}

static bool is_called(const char *name, const char *key)
{
	if (!strcmp(name, key))
		return true;
	return !strncmp(key, "NCCL_", 5) && !strncmp(name, "DICOMM_", 7) &&
	       !strcmp(name + 7, key + 5);
}

static ncclResult_t find(const char *f, const char *key, int *index)
{
	dicomm_param_info_t info;

	if (!key)
		return nccl_refuse(ncclInvalidArgument, "%s: key is NULL", f);
	for (int i = 0; get(i, &info); i++)
		if (is_called(info.name, key)) {
			*index = i;
			return ncclSuccess;
		}
	return nccl_refuse(ncclInvalidArgument,
			   "%s: key %.64s: no parameter of libdicomm, which "
			   "dicomm-info --config lists",
			   f, key);
}

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key)
{
	ncclResult_t result;
	int index = 0;

	if (!out)
		return nccl_refuse(ncclInvalidArgument, "%s: out is NULL",
				   __func__);
	*out = NULL;
	result = find(__func__, key, &index);
	if (result == ncclSuccess)
		*out = (ncclParamHandle_t)(uintptr_t)(index + 1);
	return result;
}
NCCL_ALIAS(ncclParamBind);

static ncclResult_t look_up(const char *f, ncclParamHandle_t h, const void *out,
			    dicomm_param_info_t *info)
{
	uintptr_t index = (uintptr_t)h;

	if (!out)
		return nccl_refuse(ncclInvalidArgument, "%s: out is NULL", f);
	if (!index || index > PARAMS || !get((int)index - 1, info))
		return nccl_refuse(ncclInvalidArgument,
				   "%s: handle %p: not of ncclParamBind()", f,
				   (void *)h);
	return ncclSuccess;
}

/* "64K", "on", "-1" */
static bool parse(const dicomm_param_info_t *info, int64_t *value)
{
	static const char letters[] = "KMGT";
	const char *letter;
	char *end;

	if (!strcmp(info->type, "bool")) {
		*value = !strcasecmp(info->value, "1") ||
			 !strcasecmp(info->value, "on") ||
			 !strcasecmp(info->value, "true") ||
			 !strcasecmp(info->value, "yes");
		return true;
	}
	errno = 0;
	*value = strtoll(info->value, &end, 10);
	if (end == info->value || errno)
		return false;
	letter = *end ? strchr(letters, *end) : NULL;
	if (letter)
		*value *= (int64_t)1 << (10 * (letter - letters + 1));
	return letter ? !end[1] : !*end;
}

static ncclResult_t number(const char *f, ncclParamHandle_t h, const void *out,
			   int64_t min, int64_t max, int64_t *value)
{
	dicomm_param_info_t info;
	ncclResult_t result = look_up(f, h, out, &info);

	if (result != ncclSuccess)
		return result;
	if (!parse(&info, value) || *value < min || *value > max)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %s is \"%.64s\": no such number", f,
				   info.name, info.value);
	return ncclSuccess;
}

#define GET(name, type, min, max)                                   \
	ncclResult_t name(ncclParamHandle_t h, type *out)           \
	{                                                           \
		int64_t value = 0;                                  \
		ncclResult_t result =                               \
			number(__func__, h, out, min, max, &value); \
                                                                    \
		if (result == ncclSuccess)                          \
			*out = (type)value;                         \
		return result;                                      \
	}                                                           \
	NCCL_ALIAS(name)

GET(ncclParamGetI8, int8_t, INT8_MIN, INT8_MAX);
GET(ncclParamGetI16, int16_t, INT16_MIN, INT16_MAX);
GET(ncclParamGetI32, int32_t, INT32_MIN, INT32_MAX);
GET(ncclParamGetI64, int64_t, INT64_MIN, INT64_MAX);
GET(ncclParamGetU8, uint8_t, 0, UINT8_MAX);
GET(ncclParamGetU16, uint16_t, 0, UINT16_MAX);
GET(ncclParamGetU32, uint32_t, 0, UINT32_MAX);
GET(ncclParamGetU64, uint64_t, 0, INT64_MAX);

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out)
{
	dicomm_param_info_t info;
	ncclResult_t result = look_up(__func__, h, out, &info);

	if (result == ncclSuccess)
		*out = info.value;
	return result;
}
NCCL_ALIAS(ncclParamGetStr);

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int max, int *len)
{
	dicomm_param_info_t info;
	ncclResult_t result = look_up(__func__, h, out, &info);
	size_t n;

	if (result != ncclSuccess)
		return result;
	n = strlen(info.value) + 1;
	if (max < 0 || n > (size_t)max)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: maxLen %d: %s takes %zu bytes",
				   __func__, max, info.name, n);
	memcpy(out, info.value, n);
	if (len)
		*len = (int)n;
	return ncclSuccess;
}
NCCL_ALIAS(ncclParamGet);

ncclResult_t ncclParamGetParameter(const char *key, const char **value,
				   int *len)
{
	dicomm_param_info_t info;
	ncclResult_t result;
	int index = 0;

	if (!value)
		return nccl_refuse(ncclInvalidArgument, "%s: value is NULL",
				   __func__);
	*value = NULL;
	result = find(__func__, key, &index);
	if (result != ncclSuccess || !get(index, &info))
		return result;
	*value = info.value;
	if (len)
		*len = (int)strlen(info.value);
	return ncclSuccess;
}
NCCL_ALIAS(ncclParamGetParameter);

static const char *keys[PARAMS];
static int nkeys;

static void list_keys(void)
{
	dicomm_param_info_t info;

	while (nkeys < PARAMS && get(nkeys, &info))
		keys[nkeys++] = info.name;
}

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!table || !len)
		return nccl_refuse(ncclInvalidArgument, "%s: %s is NULL",
				   __func__, table ? "tableLen" : "table");
	pthread_once(&once, list_keys);
	*table = keys;
	*len = nkeys;
	return ncclSuccess;
}
NCCL_ALIAS(ncclParamGetAllParameterKeys);

void ncclParamDumpAll(void)
{
	dicomm_param_info_t info;

	for (int i = 0; get(i, &info); i++)
		fprintf(stderr, "%s=%s (%s)\n", info.name, info.value,
			info.origin);
}
NCCL_ALIAS(ncclParamDumpAll);
