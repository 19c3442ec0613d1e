//! PyTorch's CUDA caching allocator.
