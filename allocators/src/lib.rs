//! Allocator strategies of vramlab, one file or folder each
#![forbid(unsafe_code)]
