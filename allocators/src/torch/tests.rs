//! Rules that no golden case shows, and the notices.

use vramlab_sim::testing::ScriptedMachine;

use super::*;
