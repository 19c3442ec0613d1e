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
//! | [`cells`], [`program`] | its runs, axes crossed, names checked; ops that it writes itself |
//! | [`files`] | where the files that it names lie |
//! | [`run`], [`causes`], [`beside`] | running them; why reserved bytes hold nothing; ours beside what was measured |
//! | [`expression`], [`rule`] | a figure's arithmetic; when a claim holds, and the word for it |
//! | [`claims`] | rows: figures over seeds, words |
//! | [`figures`] | its pictures |
//! | [`matrix`] | a figure of many runs, down and across |
//! | [`make`] | all of that, for one table |
//! | [`page`], [`numbers`] | the finished table, and how figures are written |
//! | [`text`], [`latex`], [`data`] | its forms |
//! | [`record`] | where what is published lies |
//! | [`store`] | its files, and whether they are still good |

pub mod beside;
pub mod built_in;
pub mod causes;
pub mod cells;
pub mod claims;
pub mod data;
pub mod experiment;
pub mod expression;
pub mod figures;
pub mod files;
pub mod latex;
pub mod make;
pub mod matrix;
pub mod numbers;
pub mod page;
pub mod program;
pub mod record;
pub mod rule;
pub mod run;
pub mod store;
pub mod text;
