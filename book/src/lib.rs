//! The vramlab book.
