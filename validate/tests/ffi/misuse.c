/* Misuses the stand-in driver on purpose: a double free, a foreign address, a stream that is none, and a leak. Then uses it well. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FIND(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(library, #name)
#define MUST(code, call)                                                                                                     \
    do {                                                                                                                     \
        int got = (call);                                                                                                    \
        if (got != (code)) {                                                                                                 \
            printf("line %d: %s gave %d, expected %d\n", __LINE__, #call, got, (code));                                      \
            return 1;                                                                                                        \
        }                                                                                                                    \
    } while (0)

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    FIND(cuInit, unsigned);
    FIND(cuDevicePrimaryCtxRetain, void **, int);
    FIND(cuDevicePrimaryCtxRelease_v2, int);
    FIND(cuCtxSetCurrent, void *);
    FIND(cuMemAlloc_v2, uint64_t *, size_t);
    FIND(cuMemFree_v2, uint64_t);
    FIND(cuMemAllocHost_v2, void **, size_t);
    FIND(cuMemFreeHost, void *);
    FIND(cuMemAllocManaged, uint64_t *, size_t, unsigned);
    FIND(cuMemAllocAsync, uint64_t *, size_t, void *);
    FIND(cuMemFreeAsync, uint64_t, void *);
    FIND(cuStreamSynchronize, void *);
    FIND(cuMemGetInfo_v2, size_t *, size_t *);
    FIND(cuDeviceGetName, char *, int, int);

    uint64_t one = 0, two = 0, managed = 0;
    void *context = 0, *host = 0;
    size_t free_bytes = 0, total = 0;
    char name[64];
    MUST(3, cuMemAlloc_v2(&one, 4096)); /* not initialised */
    MUST(0, cuInit(0));
    MUST(201, cuMemAlloc_v2(&one, 4096)); /* no context */
    MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(0, cuCtxSetCurrent(context));
    MUST(1, cuMemAlloc_v2(0, 4096)); /* nowhere to write to: the range stays, and is reported */
    MUST(0, cuMemAlloc_v2(&one, 4096));
    MUST(0, cuMemFree_v2(one));
    MUST(1, cuMemFree_v2(one));       /* twice */
    MUST(1, cuMemFree_v2(0x1234000)); /* foreign */
    MUST(0, cuMemFree_v2(0));
    MUST(1, cuStreamSynchronize((void *)77));
    MUST(0, cuMemAllocHost_v2(&host, 100000));
    memset(host, 7, 100000);
    MUST(0, cuMemFreeHost(host));
    MUST(1, cuMemFreeHost(host));
    MUST(0, cuMemAllocManaged(&managed, 100000, 1));
    memset((void *)managed, 7, 100000);
    MUST(0, cuMemFree_v2(managed));
    MUST(0, cuMemAllocAsync(&two, 4096, 0));
    MUST(0, cuMemFreeAsync(two, 0));
    MUST(0, cuStreamSynchronize(0));
    MUST(2, cuMemAlloc_v2(&two, (size_t)1 << 50)); /* out of memory */
    MUST(0, cuMemGetInfo_v2(&free_bytes, &total));
    MUST(1, cuDeviceGetName(name, 3, 0)); /* too short */
    MUST(1, cuDeviceGetName(name, -1, 0));
    MUST(0, cuDeviceGetName(name, sizeof name, 0));
    MUST(0, cuMemAlloc_v2(&two, 8192)); /* left behind */
    MUST(0, cuDevicePrimaryCtxRelease_v2(0));
    MUST(1, cuDevicePrimaryCtxRelease_v2(0));
    printf("%s: %zu of %zu\n", name, free_bytes, total);
    return 0;
}
