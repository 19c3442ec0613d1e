//! Rules that no golden case shows, and the notices.
