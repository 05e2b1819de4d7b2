/*
 * Copyright (c) 2026, rackscale.nvlink contributors
 * GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * libnvidia-ml.so.1 for machines without a GPU: it answers from a text file, read again at each nvmlInit*, that
 * standin_text.py beside it makes. Built against NVIDIA's own nvml.h, so that every struct
 * is NVIDIA's; the sizes below are those that drivers use on the wire.
 */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nvml.h>

_Static_assert(sizeof(nvmlGpuFabricInfo_t) == 28, "fabric info v1");
_Static_assert(sizeof(nvmlGpuFabricInfo_v2_t) == 36, "fabric info v2");
_Static_assert(sizeof(nvmlGpuFabricInfo_v3_t) == 40, "fabric info v3");
_Static_assert(sizeof(nvmlGpuFabricInfo_v4_t) == 548, "fabric info v4");
_Static_assert(sizeof(nvmlPlatformInfo_v1_t) == 44, "platform info v1");
_Static_assert(sizeof(nvmlPlatformInfo_v2_t) == 44, "platform info v2");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "pci info");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "field value");
_Static_assert(sizeof(nvmlPdi_v1_t) == 16, "pdi");

#define READY_FILE "/opt/nvlink-lab/gpus"
#define MAX_GPUS 64
#define MAX_CHANGES 256
#define LINE 2048 /* a fabric info v4 in hexadecimal has 1096 characters */
#define MAX_STRUCT 548
#define EXPORT __attribute__((visibility("default")))

/* A field of a link that differs from that of a healthy one. */
typedef struct {
    unsigned int link, field;
    unsigned long long value;
} change_t;

typedef struct {
    int lost;
    int has_fabric, has_platform;
    long module, mig, recovery; /* -1: not supported */
    unsigned long long pdi, guid;
    char uuid[LINE], name[LINE], pci[LINE], chassis[LINE];
    unsigned int state, status, clique, mask, summary;
    unsigned int slot, tray, host;
    unsigned char cluster[16];
    unsigned int clique_count; /* of version 4; 0: the driver does not have that version */
    nvmlGpuFabricClique_v1_t cliques[NVML_GPU_FABRIC_CLIQUE_MAX];
    unsigned int links, link_speed, slots; /* 0 links: the GPU has no NVLink; slots: as many, or more that are refused */
    unsigned int change_count;
    change_t changes[MAX_CHANGES];
    int is_captured; /* the fabric calls answer with the bytes of a support bundle */
    struct {
        int is_known;
        nvmlReturn_t code;
        unsigned char bytes[MAX_STRUCT];
    } structs[5]; /* by version */
} gpu_t;

static struct {
    int initialized;
    char fault[32], driver[LINE];
    unsigned int count, slow_calls;
    gpu_t gpus[MAX_GPUS];
} lab;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fault_is(const char *name) { return strcmp(lab.fault, name) == 0; }

static void hang(void)
{
    for (;;)
        pause();
}

static long number_or_unsupported(const char *text) { return strcmp(text, "-") == 0 ? -1 : strtol(text, NULL, 0); }

static void hex_bytes(const char *text, unsigned char *bytes, int length)
{
    for (int i = 0; i < length; i++) {
        unsigned int byte = 0;
        if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
            return;
        sscanf(text, "%2x", &byte);
        bytes[i] = (unsigned char)byte;
        text += 2;
    }
}

static void parse_gpu(gpu_t *gpu, const char *key, const char *value)
{
    if (strcmp(key, "lost") == 0) {
        gpu->lost = atoi(value);
    } else if (strcmp(key, "uuid") == 0) {
        strcpy(gpu->uuid, value);
    } else if (strcmp(key, "name") == 0) {
        strcpy(gpu->name, value);
    } else if (strcmp(key, "pci") == 0) {
        strcpy(gpu->pci, value);
    } else if (strcmp(key, "module") == 0) {
        gpu->module = number_or_unsupported(value);
    } else if (strcmp(key, "mig") == 0) {
        gpu->mig = number_or_unsupported(value);
    } else if (strcmp(key, "recovery") == 0) {
        gpu->recovery = number_or_unsupported(value);
    } else if (strcmp(key, "pdi") == 0) {
        gpu->pdi = strtoull(value, NULL, 0);
    } else if (strcmp(key, "guid") == 0) {
        gpu->guid = strtoull(value, NULL, 0);
    } else if (strcmp(key, "platform") == 0) {
        gpu->has_platform = sscanf(value, "%u %u %u %1023s", &gpu->slot, &gpu->tray, &gpu->host, gpu->chassis) >= 3;
    } else if (strcmp(key, "fabric") == 0) {
        char cluster[64] = "";
        gpu->has_fabric = sscanf(value, "%u %u %u %63s %x %u", &gpu->state, &gpu->status, &gpu->clique, cluster,
                                 &gpu->mask, &gpu->summary) == 6;
        hex_bytes(cluster, gpu->cluster, 16);
    } else if (strcmp(key, "links") == 0) {
        if (sscanf(value, "%u %u %u", &gpu->links, &gpu->link_speed, &gpu->slots) < 3)
            gpu->slots = gpu->links;
    } else if (strcmp(key, "link") == 0 && gpu->change_count < MAX_CHANGES) {
        change_t *change = &gpu->changes[gpu->change_count];
        gpu->change_count += sscanf(value, "%u %u %llu", &change->link, &change->field, &change->value) == 3;
    } else if (strcmp(key, "struct") == 0) {
        unsigned int version, code;
        int length = 0;
        if (sscanf(value, "%u %u %n", &version, &code, &length) == 2 && version < 5) {
            gpu->is_captured = gpu->structs[version].is_known = 1;
            gpu->structs[version].code = (nvmlReturn_t)code;
            hex_bytes(value + length, gpu->structs[version].bytes, MAX_STRUCT);
        }
    } else if (strcmp(key, "cliques") == 0) {
        unsigned int type, id;
        int length;
        while (gpu->clique_count < NVML_GPU_FABRIC_CLIQUE_MAX && sscanf(value, "%u:%u%n", &type, &id, &length) == 2) {
            gpu->cliques[gpu->clique_count].type = (unsigned char)type;
            gpu->cliques[gpu->clique_count++].id = id;
            value += length;
        }
    }
}

static int read_ready_file(void)
{
    const char *path = getenv("NVLINK_STANDIN_GPUS");
    FILE *file = fopen(path ? path : READY_FILE, "r");
    char line[LINE];

    lab.count = 0;
    strcpy(lab.fault, "none");
    strcpy(lab.driver, "-");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        char *value;
        line[strcspn(line, "\n")] = '\0';
        value = strchr(line, ' ');
        if (!value)
            continue;
        *value++ = '\0';
        if (strcmp(line, "fault") == 0) {
            snprintf(lab.fault, sizeof lab.fault, "%s", value);
        } else if (strcmp(line, "driver") == 0) {
            strcpy(lab.driver, value);
        } else if (strcmp(line, "gpu") == 0 && lab.count < MAX_GPUS) {
            gpu_t *gpu = &lab.gpus[lab.count++];
            memset(gpu, 0, sizeof *gpu);
            gpu->module = gpu->mig = gpu->recovery = -1;
        } else if (lab.count) {
            parse_gpu(&lab.gpus[lab.count - 1], line, value);
        }
    }
    fclose(file);
    return 1;
}

static nvmlReturn_t init(unsigned int flags)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (!read_ready_file() || fault_is("no_driver"))
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (fault_is("version_mismatch"))
        result = NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    else if (fault_is("no_permission"))
        result = NVML_ERROR_NO_PERMISSION;
    if (fault_is("no_gpu"))
        lab.count = 0;
    /* The real library starts without a GPU only with the flag for it. */
    if (result == NVML_SUCCESS && lab.count == 0 && !(flags & NVML_INIT_FLAG_NO_GPUS))
        result = NVML_ERROR_NOT_FOUND;
    if (fault_is("prints")) {
        printf("NVML: %u GPUs\n", lab.count);
        fflush(stdout);
    }
    if (result == NVML_SUCCESS)
        lab.initialized = 1;
    pthread_mutex_unlock(&lock);
    if (fault_is("hang"))
        hang();
    if (fault_is("crash"))
        abort();
    return result;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return init(flags); }

static nvmlReturn_t give_text(const char *text, char *buffer, unsigned int length)
{
    if (!lab.initialized)
        return NVML_ERROR_UNINITIALIZED;
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strcmp(text, "-") == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return give_text(lab.driver, version, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!lab.initialized)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = lab.count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (!lab.initialized)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= lab.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (fault_is("handle_refused"))
        return NVML_ERROR_NO_PERMISSION;
    /* The handle of a lost GPU is given out, the calls on it fail: what a GPU lost at run time looks like. */
    *device = (nvmlDevice_t)&lab.gpus[index];
    return NVML_SUCCESS;
}

static nvmlReturn_t device(nvmlDevice_t handle, const void *argument, gpu_t **gpu)
{
    gpu_t *given = (gpu_t *)handle;
    /* The first 25 calls of each process: 5 s in all. */
    if (fault_is("slow") && lab.slow_calls++ < 25)
        usleep(200 * 1000);
    if (!lab.initialized)
        return NVML_ERROR_UNINITIALIZED;
    if (!argument || given < lab.gpus || given >= lab.gpus + lab.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (given->lost)
        return NVML_ERROR_GPU_IS_LOST;
    *gpu = given;
    return NVML_SUCCESS;
}

#define DEVICE(handle, argument)                                     \
    gpu_t *gpu = NULL;                                               \
    nvmlReturn_t device_result = device(handle, argument, &gpu);     \
    if (device_result != NVML_SUCCESS)                               \
        return device_result

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length)
{
    DEVICE(handle, uuid);
    return give_text(gpu->uuid, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length)
{
    DEVICE(handle, name);
    return give_text(gpu->name, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    unsigned int domain = 0, bus = 0, slot = 0;
    DEVICE(handle, pci);
    if (strcmp(gpu->pci, "-") == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->pci, "%x:%x:%x", &domain, &bus, &slot);
    pci->domain = domain;
    pci->bus = bus;
    pci->device = slot;
    pci->pciDeviceId = 0x294110DE;
    snprintf(pci->busId, sizeof pci->busId, "%.31s", gpu->pci);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0xff);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t handle, unsigned int *module)
{
    DEVICE(handle, module);
    if (gpu->module < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *module = (unsigned int)gpu->module;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t handle, nvmlPdi_t *pdi)
{
    DEVICE(handle, pdi);
    if (pdi->version != nvmlPdi_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    pdi->value = gpu->pdi;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned int *current, unsigned int *pending)
{
    DEVICE(handle, current);
    if (gpu->mig < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = (unsigned int)gpu->mig;
    if (pending)
        *pending = *current;
    return NVML_SUCCESS;
}

static void give_unsigned(nvmlFieldValue_t *value, unsigned int number)
{
    value->nvmlReturn = NVML_SUCCESS;
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    value->value.uiVal = number;
}

/* State, speed and counters of one link, given by scopeId. */
static void link_field(const gpu_t *gpu, nvmlFieldValue_t *value)
{
    unsigned long long number = 0;

    if (value->fieldId == NVML_FI_DEV_NVLINK_GET_STATE)
        number = NVML_NVLINK_STATE_ACTIVE;
    else if (value->fieldId == NVML_FI_DEV_NVLINK_GET_SPEED)
        number = gpu->link_speed;
    else if (value->fieldId < NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS ||
             value->fieldId > NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER)
        return;
    if (value->scopeId >= gpu->links) {
        value->nvmlReturn = gpu->links ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
        return;
    }
    for (unsigned int i = 0; i < gpu->change_count; i++)
        if (gpu->changes[i].link == value->scopeId && gpu->changes[i].field == value->fieldId)
            number = gpu->changes[i].value;
    if (value->fieldId == NVML_FI_DEV_NVLINK_GET_STATE || value->fieldId == NVML_FI_DEV_NVLINK_GET_SPEED) {
        give_unsigned(value, (unsigned int)number);
        return;
    }
    value->nvmlReturn = NVML_SUCCESS;
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value.ullVal = number;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *values)
{
    DEVICE(handle, values);
    for (int i = 0; i < count; i++) {
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && gpu->recovery >= 0)
            give_unsigned(&values[i], (unsigned int)gpu->recovery);
        else if (values[i].fieldId == NVML_FI_DEV_NVLINK_LINK_COUNT && gpu->links)
            give_unsigned(&values[i], gpu->slots);
        else
            link_field(gpu, &values[i]);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t fabric(const gpu_t *gpu, const char *fault_that_leaves_it)
{
    if (fault_is("hang_fabric"))
        hang();
    if (fault_is("no_fabric"))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (fault_is("fabric_refused"))
        return NVML_ERROR_NO_PERMISSION;
    if (strncmp(lab.fault, "only_", 5) == 0 && !strstr(fault_that_leaves_it, lab.fault))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return gpu->has_fabric ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define FILL(info)                                          \
    memcpy((info)->clusterUuid, gpu->cluster, 16);          \
    (info)->status = (nvmlReturn_t)gpu->status;             \
    (info)->state = (nvmlGpuFabricState_t)gpu->state

/* A fault of the lab ranks above what was captured. */
static int is_captured(const gpu_t *gpu) { return gpu->is_captured && fault_is("none"); }

static nvmlReturn_t captured(const gpu_t *gpu, unsigned int version, void *info, size_t size)
{
    if (!gpu->structs[version].is_known)
        return version == 4 ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (gpu->structs[version].code == NVML_SUCCESS)
        memcpy(info, gpu->structs[version].bytes, size);
    return gpu->structs[version].code;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, nvmlGpuFabricInfo_t *info)
{
    DEVICE(handle, info);
    if (is_captured(gpu))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH; /* version 1 is never captured */
    nvmlReturn_t result = fabric(gpu, "only_v1 only_v2");
    if (result != NVML_SUCCESS)
        return result;
    FILL(info);
    info->cliqueId = gpu->clique;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfoV_t *info)
{
    DEVICE(handle, info);
    if (is_captured(gpu) && info->version == nvmlGpuFabricInfo_v3)
        return captured(gpu, 3, info, sizeof(nvmlGpuFabricInfo_v3_t));
    if (is_captured(gpu) && info->version == nvmlGpuFabricInfo_v2)
        return captured(gpu, 2, info, sizeof(nvmlGpuFabricInfo_v2_t));
    if (info->version == nvmlGpuFabricInfo_v3) {
        nvmlGpuFabricInfo_v3_t *answer = (nvmlGpuFabricInfo_v3_t *)info;
        nvmlReturn_t result = fault_is("v3_deprecated") ? NVML_ERROR_DEPRECATED : fabric(gpu, "");
        if (result != NVML_SUCCESS)
            return result;
        FILL(answer);
        answer->cliqueId = gpu->clique;
        answer->healthMask = gpu->mask;
        answer->healthSummary = (unsigned char)gpu->summary;
        return NVML_SUCCESS;
    }
    if (info->version == nvmlGpuFabricInfo_v2) {
        nvmlGpuFabricInfo_v2_t *answer = (nvmlGpuFabricInfo_v2_t *)info;
        nvmlReturn_t result = fabric(gpu, "only_v2");
        if (result != NVML_SUCCESS)
            return result;
        FILL(answer);
        answer->cliqueId = gpu->clique;
        answer->healthMask = gpu->mask;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t handle, nvmlGpuFabricInfo_v4_t *info)
{
    DEVICE(handle, info);
    if (is_captured(gpu))
        return captured(gpu, 4, info, sizeof *info);
    if (!gpu->clique_count && !fault_is("only_v4"))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t result = fabric(gpu, "only_v4");
    if (result != NVML_SUCCESS)
        return result;
    memset(info, 0, sizeof *info);
    FILL(info);
    info->numCliques = gpu->clique_count ? gpu->clique_count : 1;
    info->cliques[0].id = gpu->clique;
    memcpy(info->cliques, gpu->cliques, gpu->clique_count * sizeof *gpu->cliques);
    info->healthMask = gpu->mask;
    info->healthSummary = (unsigned char)gpu->summary;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t handle, nvmlPlatformInfo_t *info)
{
    DEVICE(handle, info);
    if (info->version != nvmlPlatformInfo_v2 && info->version != nvmlPlatformInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (info->version == nvmlPlatformInfo_v2 && (fault_is("only_v2") || fault_is("only_v1")))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!gpu->has_platform)
        return NVML_ERROR_NOT_SUPPORTED;
    /* Both versions have the same bytes under other names. */
    memset((char *)info + sizeof info->version, 0, sizeof *info - sizeof info->version);
    for (int byte = 0; byte < 8; byte++)
        info->ibGuid[byte] = (unsigned char)(gpu->guid >> (56 - 8 * byte));
    memcpy(info->chassisSerialNumber, gpu->chassis, strnlen(gpu->chassis, sizeof info->chassisSerialNumber));
    info->slotNumber = (unsigned char)gpu->slot;
    info->trayIndex = (unsigned char)gpu->tray;
    info->hostId = (unsigned char)gpu->host;
    info->peerType = 1;
    info->moduleId = gpu->module < 0 ? 0 : (unsigned char)gpu->module;
    return NVML_SUCCESS;
}
