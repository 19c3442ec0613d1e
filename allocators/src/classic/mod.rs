//! The allocators of the textbooks, on one arena each.
