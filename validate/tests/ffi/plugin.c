/* Uses libvramlab_torch.so as PyTorch does: sizes, streams, frees from other threads, hooks, out of memory; streams and events by the runtime. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                                                      \
    do {                                                                                                                     \
        if (!(condition)) {                                                                                                  \
            printf("line %d: %s\n", __LINE__, #condition);                                                                   \
            exit(1);                                                                                                         \
        }                                                                                                                    \
    } while (0)

typedef struct {
    uint64_t first, second;
} Pool;

static void *(*alloc)(ptrdiff_t, int, void *);
static void (*give_back)(void *, ptrdiff_t, int, void *);
static void (*init)(int), (*empty_cache)(void), (*fraction)(double, int), (*record_stream)(void *, void *);
static void (*begin_pool)(int, Pool, void *), (*end_pool)(int, Pool), (*release_pool)(int, Pool), (*finish)(void);
static int (*check)(int, char *, size_t);
static int (*stream_create)(void **), (*mem_info)(size_t *, size_t *), (*synchronize)(void), (*set_device)(int), (*get_device)(int *);
static int (*exchange_mode)(unsigned *);

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

#define LIVE 64
static void *blocks[LIVE];
static ptrdiff_t sizes[LIVE];

/* Frees what another thread asked for. */
static void *other_thread(void *stream) {
    for (int at = 1; at < LIVE; at += 2) {
        give_back(blocks[at], sizes[at], 0, stream);
        blocks[at] = 0;
    }
    return 0;
}

/* Asks and frees beside others that do. */
static void *busy_thread(void *stream) {
    for (int round = 0; round < 200; round++) {
        void *one = alloc(1000 + round * 512, 0, stream), *two = alloc(3 << 20, 0, stream);
        MUST(one && two && one != two);
        give_back(one, 1000 + round * 512, 0, stream);
        give_back(two, 3 << 20, 0, stream);
    }
    return 0;
}

int main(int count, char **args) {
    MUST(count == 2);
    void *plugin = dlopen(args[1], RTLD_NOW), *runtime = dlopen("libcudart.so.13", RTLD_NOW), *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!plugin || !runtime || !driver) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&alloc = find(plugin, "vramlab_alloc");
    *(void **)&give_back = find(plugin, "vramlab_free");
    *(void **)&init = find(plugin, "vramlab_init");
    *(void **)&empty_cache = find(plugin, "vramlab_empty_cache");
    *(void **)&fraction = find(plugin, "vramlab_memory_fraction");
    *(void **)&record_stream = find(plugin, "vramlab_record_stream");
    *(void **)&begin_pool = find(plugin, "vramlab_begin_pool");
    *(void **)&end_pool = find(plugin, "vramlab_end_pool");
    *(void **)&release_pool = find(plugin, "vramlab_release_pool");
    *(void **)&finish = find(plugin, "vramlab_finish");
    *(void **)&check = find(plugin, "vramlab_check");
    *(void **)&stream_create = find(runtime, "cudaStreamCreate");
    *(void **)&mem_info = find(runtime, "cudaMemGetInfo");
    *(void **)&synchronize = find(runtime, "cudaDeviceSynchronize");
    *(void **)&set_device = find(runtime, "cudaSetDevice");
    *(void **)&get_device = find(runtime, "cudaGetDevice");
    *(void **)&exchange_mode = find(driver, "cuThreadExchangeStreamCaptureMode");

    char why[512] = "";
    if (check(0, why, sizeof why)) {
        printf("refused: %s\n", why);
        MUST(!alloc(4096, 0, 0)); /* so is every request, and nothing breaks */
        give_back(0, 4096, 0, 0);
        empty_cache();
        return 0;
    }
    init(1);
    unsigned mode = 1; /* this thread's own captures; it began with everyone's, and the check has left it so */
    MUST(!exchange_mode(&mode) && mode == 0);
    size_t free_before, free_after, total;
    MUST(!mem_info(&free_before, &total));
    void *streams[3] = {0};
    MUST(!stream_create(&streams[1]) && !stream_create(&streams[2]));

    /* sizes, on several streams; no two overlap */
    for (int at = 0; at < LIVE; at++) {
        sizes[at] = at % 3 == 0 ? 1 + at : at % 3 == 1 ? 100000 + at * 4096 : (5 << 20) + at;
        blocks[at] = alloc(sizes[at], 0, streams[at % 3]);
        MUST(blocks[at] && (uintptr_t)blocks[at] % 256 == 0);
        for (int other = 0; other < at; other++) {
            uintptr_t a = (uintptr_t)blocks[at], b = (uintptr_t)blocks[other];
            MUST(a + sizes[at] <= b || b + sizes[other] <= a);
        }
    }
    MUST(!mem_info(&free_after, &total) && free_after <= free_before); /* managed memory is taken when it is touched */

    /* another stream uses one */
    record_stream(blocks[2], streams[1]);
    record_stream(0, streams[1]);
    record_stream((void *)0x1234500, streams[1]); /* foreign: said, and nothing happens */

    /* frees from another thread, and many threads at once */
    pthread_t threads[4];
    MUST(!pthread_create(&threads[0], 0, other_thread, streams[1]) && !pthread_join(threads[0], 0));
    for (int at = 0; at < 4; at++)
        MUST(!pthread_create(&threads[at], 0, busy_thread, streams[at % 3]));
    for (int at = 0; at < 4; at++)
        MUST(!pthread_join(threads[at], 0));
    for (int at = 0; at < LIVE; at += 2)
        give_back(blocks[at], sizes[at], 0, streams[at % 3]);

    /* nothing asked, nothing given; what makes no sense is said */
    MUST(!alloc(0, 0, 0) && !alloc(-5, 0, 0) && !alloc(PTRDIFF_MAX, 0, 0) && !alloc(4096, 77, 0));
    give_back(0, 0, 0, 0);
    give_back(blocks[2], sizes[2], 0, 0); /* twice */

    /* out of memory is a null pointer, after which it goes on */
    MUST(!alloc((ptrdiff_t)total, 0, 0));
    void *again = alloc(1 << 20, 0, 0);
    MUST(again);
    give_back(again, 1 << 20, 0, 0);

    /* hooks */
    Pool pool = {0, 9};
    begin_pool(0, pool, 0);
    again = alloc(4096, 0, streams[1]); /* no capture: the default pool serves it */
    MUST(again);
    end_pool(0, pool);
    give_back(again, 4096, 0, streams[1]);
    release_pool(0, pool);
    fraction(0.5, 0);
    MUST(!synchronize());
    empty_cache();
    int device = -1;
    MUST(!get_device(&device) && device == 0);
    MUST(!exchange_mode(&mode) && mode == 1); /* what the caller chose is as it was */
    finish();
    printf("served\n");
    return 0;
}
