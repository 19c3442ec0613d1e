/* Uses the stand-in for the runtime well and badly: memory, streams, events, copies, errors, devices by thread; its books are the driver's. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
int cudaMallocHost(void **, size_t), cudaFreeHost(void *), cudaMallocManaged(void **, size_t, unsigned);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *), cudaMemcpy(void *, const void *, size_t, int);
int cudaMemGetInfo(size_t *, size_t *), cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int);
int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamDestroy(void *), cudaStreamSynchronize(void *), cudaStreamWaitEvent(void *, void *, unsigned);
int cudaEventCreateWithFlags(void **, unsigned), cudaEventRecord(void *, void *), cudaEventQuery(void *), cudaEventSynchronize(void *), cudaEventDestroy(void *);
int cudaEventElapsedTime(float *, void *, void *), cudaDeviceSynchronize(void), cudaGetLastError(void), cudaPeekAtLastError(void);
int cudaRuntimeGetVersion(int *), cudaDeviceGetDefaultMemPool(void **, int), cudaMemPoolGetAttribute(void *, int, void *), cudaMemPoolTrimTo(void *, size_t);
const char *cudaGetErrorString(int), *cudaGetErrorName(int);

#define MUST(code, call)                                                                                                     \
    do {                                                                                                                     \
        int got = (call);                                                                                                    \
        if (got != (code)) {                                                                                                 \
            printf("line %d: %s gave %d, expected %d\n", __LINE__, #call, got, (code));                                      \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

static void *other_thread(void *nothing) {
    int device = -1;
    MUST(0, cudaGetDevice(&device));
    MUST(0, device); /* each thread has its own */
    MUST(0, cudaGetLastError());
    return nothing;
}

int main(void) {
    void *one = 0, *two = 0, *host = 0, *stream = 0, *event = 0, *later = 0, *pool = 0;
    size_t free_bytes = 0, before = 0, total = 0;
    uint64_t used = 1;
    int count = 0, device = -1;
    float ms = -1;
    pthread_t thread;
    MUST(0, cudaGetDeviceCount(&count));
    MUST(2, count);
    MUST(0, cudaMemGetInfo(&before, &total));
    MUST(0, cudaMalloc(&one, 10 << 20));
    MUST(0, cudaMemGetInfo(&free_bytes, &total));
    MUST(10 << 20, (int)(before - free_bytes));
    MUST(0, cudaMalloc(&two, 0)); /* nothing */
    MUST(1, two == 0);
    MUST(0, cudaFree(0));
    MUST(0, cudaMallocHost(&host, 1 << 20));
    MUST(0, cudaStreamCreateWithFlags(&stream, 1));
    MUST(0, cudaEventCreateWithFlags(&event, 2));
    MUST(0, cudaEventCreateWithFlags(&later, 0));
    MUST(0, cudaEventRecord(event, stream));
    memset(host, 7, 1 << 20);
    MUST(0, cudaMemcpyAsync(one, host, 1 << 20, 1, stream));
    MUST(0, cudaMemcpyAsync(host, one, 1 << 20, 2, stream));
    MUST(0, cudaMemcpy((char *)one + (1 << 20), one, 1 << 20, 3));
    MUST(0, cudaEventRecord(later, stream));
    MUST(0, cudaStreamWaitEvent(0, later, 0));
    MUST(0, cudaEventSynchronize(later));
    MUST(0, cudaEventQuery(event));
    MUST(0, cudaEventElapsedTime(&ms, event, later));
    MUST(1, ms >= 0);
    MUST(0, cudaMallocAsync(&two, 4096, stream));
    MUST(0, cudaFreeAsync(two, stream));
    MUST(0, cudaStreamSynchronize(stream));
    MUST(0, cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(0, cudaMemPoolTrimTo(pool, 0));
    MUST(0, cudaMemPoolGetAttribute(pool, 7, &used));
    MUST(0, (int)used);

    /* errors are remembered by thread, until they are asked for */
    MUST(2, cudaMalloc(&two, (size_t)1 << 50));
    MUST(2, cudaPeekAtLastError());
    MUST(0, pthread_create(&thread, 0, other_thread, 0));
    MUST(0, pthread_join(thread, 0));
    MUST(2, cudaGetLastError());
    MUST(0, cudaGetLastError());
    MUST(0, strcmp(cudaGetErrorString(2), "out of memory"));
    MUST(0, strcmp(cudaGetErrorName(600), "cudaErrorNotReady"));
    MUST(1, cudaMemcpy(one, host, 1, 0));

    /* the other device, which has no pools */
    MUST(101, cudaSetDevice(2));
    MUST(0, cudaSetDevice(1));
    MUST(0, cudaGetDevice(&device));
    MUST(1, device);
    MUST(801, cudaMallocAsync(&two, 4096, 0));
    MUST(0, cudaSetDevice(0));

    MUST(0, cudaFree(one));
    MUST(1, cudaFree(one)); /* twice */
    MUST(0, cudaFreeHost(host));
    MUST(0, cudaEventDestroy(event));
    MUST(0, cudaEventDestroy(later));
    MUST(0, cudaStreamDestroy(stream));
    MUST(0, cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
