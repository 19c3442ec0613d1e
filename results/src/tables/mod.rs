//! Experiment files, and the tables of claims that they give.
//!
//! ```text
//! file ─▶ experiment ─▶ cells ─▶ run ─▶ claims ─▶ page ─▶ text, latex, data ─▶ store
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`built_in`] | the files of `results/experiments` |
//! | [`experiment`] | a file: runs, rows, listings |
//! | [`cells`] | its runs, axes crossed, names checked |
//! | [`run`] | running them |
//! | [`expression`], [`rule`] | a figure's arithmetic; when a claim holds, and the word for it |
//! | [`claims`] | rows: figures over seeds, words |
//! | [`figures`] | its pictures |
//! | [`make`] | all of that, for one table |
//! | [`page`], [`numbers`] | the finished table, and how figures are written |
//! | [`text`], [`latex`], [`data`] | its forms |
//! | [`store`] | its files, and whether they are still good |

pub mod built_in;
pub mod cells;
pub mod claims;
pub mod data;
pub mod experiment;
pub mod expression;
pub mod figures;
pub mod latex;
pub mod make;
pub mod numbers;
pub mod page;
pub mod rule;
pub mod run;
pub mod store;
pub mod text;
