/* Allocator libraries for PyTorch over CUDA's runtime, one by WHICH: 0 plain, 1 crashes, 2 needs a function that nobody has, 3 has other names. */
#include <stddef.h>

int cudaMalloc(void **pointer, size_t size);
int cudaFree(void *pointer);
int cudaSetDevice(int device);
int cudaGetLastError(void);
int vramlab_nobody_has_this(void);

#if WHICH == 3
#define my_malloc other_malloc
#define my_free other_free
#endif

void *my_malloc(ptrdiff_t size, int device, void *stream) {
    void *pointer = 0;
    (void)stream;
    if (size == 0)
        return 0;
    cudaSetDevice(device);
#if WHICH == 1
    *(volatile int *)8 = 1;
#elif WHICH == 2
    vramlab_nobody_has_this();
#endif
    if (cudaMalloc(&pointer, size)) {
        cudaGetLastError();
        return 0;
    }
    return pointer;
}

void my_free(void *pointer, ptrdiff_t size, int device, void *stream) {
    (void)size, (void)stream;
    cudaSetDevice(device);
    cudaFree(pointer);
}
