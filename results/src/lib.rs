//! The `vramlab` command, as a library: runs, tables and advice.
//!
//! | module | holds |
//! |---|---|
//! | [`advise`] | settings searched and proved, rewrites of a recording, cards |
//! | [`analysis`] | what happened in a run: lives, categories, causes of fragmentation |
//! | [`mod@bench`] | what criterion measured, as tables |
//! | [`check`] | does a strategy place what a recording placed? |
//! | [`cli`] | the command line, and how it ends |
//! | [`described`] | files that have nothing to be replayed, in figures |
//! | [`explain`] | out-of-memory messages in plain words |
//! | [`failure`] | errors with their exit codes |
//! | [`figures`] | pictures for print, SVG: memory over time, maps, latencies, bars |
//! | [`frame`] | the tidy frame: one row per run and figure, as CSV and Parquet |
//! | [`fit`] | what a run needs of a device, and the largest batch |
//! | [`inputs`] | recordings, opened by their content |
//! | [`job`] | one run: an input, a strategy, a device |
//! | [`least`] | the least device on which a run ends well |
//! | [`room`] | how large a device a recording needs |
//! | [`made`] | inputs that workloads make |
//! | [`measured`] | our models beside what was measured of real runs |
//! | [`serving`] | our server beside measured runs of real ones |
//! | [`report`] | a history as one page for a browser |
//! | [`statistics`] | intervals, warm-up, steady state |
//! | [`tables`] | experiment files, and the tables of claims that they give |
//! | [`runs`] | many pairs: rows, and inputs that are bad |
//! | [`row`] | what a run gave, as it is printed and written |
//! | [`per_op`] | one line per op |
//! | [`output`] | table, json, csv, markdown |
//! | [`sweep`] | grids of runs, in shards |
//! | [`commands`] | one file a command |
#![forbid(unsafe_code)]

pub mod advise;
pub mod analysis;
pub mod bench;
pub mod check;
pub mod cli;
pub mod commands;
pub mod described;
pub mod explain;
pub mod failure;
pub mod figures;
pub mod fit;
pub mod frame;
pub mod inputs;
pub mod job;
pub mod least;
pub mod made;
pub mod measured;
pub mod output;
pub mod per_op;
pub mod progress;
pub mod report;
pub mod room;
pub mod row;
pub mod runs;
pub mod serving;
pub mod statistics;
pub mod sweep;
pub mod tables;
