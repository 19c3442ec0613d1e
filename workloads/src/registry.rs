//! Every synthetic workload: name, parameters, how to build it. A new one is one file and one entry here.

use vramlab_sim::Source;

use crate::graph::Plan;
use crate::graph::models::decoder::params as decoder;
use crate::graph::passes::Report;
use crate::params::{ParamDoc, ParamError, Params, nearest};
use crate::rates::Rates;
use crate::serving::llm;
use crate::synthetic::{bert, churn, fragment, ocr, varlen, vision};

/// What a workload's ops carry, so that a strategy that needs more can be left out of a comparison, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carries {
    /// `work` ops list the buffers that they read and write.
    pub accesses: bool,
    /// It asks a cache for slots of sequences.
    pub sequences: bool,
}

/// A source that may be handed to another thread.
pub type BoxedSource = Box<dyn Source + Send>;

/// A synthetic workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What the user calls it.
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [ParamDoc],
    /// What its ops carry.
    pub carries: Carries,
    /// Makes it from parameters, seed and the device's rates.
    pub build: fn(&Params, u64, &Rates) -> Result<BoxedSource, ParamError>,
    /// One line for tables and lists.
    pub summary: &'static str,
    /// If it is a model's graph: the plan of a step, and what passes changed.
    pub plan: Option<MakePlan>,
    /// What its times rest on with these parameters, where that is not measured: a line for under its figures.
    pub assumes: fn(&Params) -> Option<&'static str>,
}

/// Makes a model's plan from its parameters.
pub type MakePlan = fn(&Params) -> Result<(Plan, Vec<Report>), ParamError>;

const ACCESSES: Carries = Carries { accesses: true, sequences: false };
const SEQUENCES: Carries = Carries { sequences: true, ..ACCESSES };

/// All of them, in the order in which lists show them.
pub const WORKLOADS: &[Workload] = &[
    model(
        entry(
            "bert",
            bert::PARAMS,
            ACCESSES,
            bert::build,
            "BERT training steps at one length, from layer shapes",
        ),
        bert::plan,
    ),
    model(
        entry(
            "gpt2",
            decoder::GPT2,
            ACCESSES,
            decoder::build_gpt2,
            "GPT-2: training, or decoding with a cache that grows",
        ),
        decoder::plan_gpt2,
    ),
    model(
        entry(
            "llama",
            decoder::LLAMA,
            ACCESSES,
            decoder::build_llama,
            "a Llama-style decoder: grouped queries, experts; training or decoding",
        ),
        decoder::plan_llama,
    ),
    entry(
        "varlen",
        varlen::PARAMS,
        ACCESSES,
        varlen::build,
        "the same model over batches whose length varies",
    ),
    model(
        entry(
            "mlp",
            vision::mlp::PARAMS,
            ACCESSES,
            vision::mlp::build,
            "dense layers with an activation between them: the smallest model",
        ),
        vision::mlp::plan,
    ),
    model(
        entry(
            "resnet",
            vision::resnet::PARAMS,
            ACCESSES,
            vision::resnet::build,
            "residual networks: training steps (or inference) over images",
        ),
        vision::resnet::plan,
    ),
    model(
        entry(
            "detector",
            vision::detector::PARAMS,
            ACCESSES,
            vision::detector::build,
            "a text detector (DB-style): training steps or inference over pages",
        ),
        vision::detector::plan,
    ),
    model(
        entry(
            "recogniser",
            vision::recogniser::PARAMS,
            ACCESSES,
            vision::recogniser::build,
            "a recogniser of text lines (CRNN-style): training steps or inference",
        ),
        vision::recogniser::plan,
    ),
    assuming(
        entry(
            "ocr",
            ocr::PARAMS,
            ACCESSES,
            ocr::build,
            "bursts of pages: detector, then a varying number of line crops",
        ),
        ocr::assumes,
    ),
    assuming(
        entry(
            "llm",
            llm::PARAMS,
            SEQUENCES,
            llm::build,
            "a server of a language model: continuous batching over a cache of keys and values",
        ),
        llm::assumes,
    ),
    entry(
        "churn",
        churn::PARAMS,
        ACCESSES,
        churn::build,
        "random sizes held for random times around a target of live bytes",
    ),
    entry(
        "fragment",
        fragment::PARAMS,
        ACCESSES,
        fragment::build,
        "one buffer at a time, of sizes taken in turn",
    ),
];

/// The workload of this name.
///
/// # Errors
/// When there is none; the nearest names are offered.
pub fn find(name: &str) -> Result<&'static Workload, ParamError> {
    WORKLOADS.iter().find(|workload| workload.name == name).ok_or_else(|| {
        ParamError::UnknownWorkload {
            name: name.to_owned(),
            offer: nearest(name, WORKLOADS.iter().map(|workload| workload.name)),
        }
    })
}

impl Workload {
    /// Its parameters with these set, from `key=value,key=value`.
    ///
    /// # Errors
    /// When a key is unknown or a piece is no pair; values are checked when the workload is built.
    pub fn params_from(&self, text: &str) -> Result<Params, ParamError> {
        let mut params = Params::defaults(self.params);
        params.set_text(text)?;
        Ok(params)
    }

    /// The source for these parameters, from `key=value,key=value`, on a device of these rates.
    ///
    /// # Errors
    /// When a parameter is unknown or its value is refused.
    pub fn source(&self, text: &str, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
        (self.build)(&self.params_from(text)?, seed, rates)
    }
}

const fn entry(
    name: &'static str,
    params: &'static [ParamDoc],
    carries: Carries,
    build: fn(&Params, u64, &Rates) -> Result<BoxedSource, ParamError>,
    summary: &'static str,
) -> Workload {
    Workload { name, params, carries, build, summary, plan: None, assumes: |_| None }
}

/// A workload whose times rest on something that is not measured.
const fn assuming(workload: Workload, assumes: fn(&Params) -> Option<&'static str>) -> Workload {
    Workload { assumes, ..workload }
}

/// A workload that is a model's graph.
const fn model(workload: Workload, plan: MakePlan) -> Workload {
    Workload { plan: Some(plan), ..workload }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slip of a few zeros ran for days.
    #[test]
    fn no_workload_takes_a_count_that_it_would_not_live_to_see_the_end_of() {
        let counts = [
            ("bert", "steps"),
            ("gpt2", "steps"),
            ("llama", "steps"),
            ("varlen", "steps"),
            ("mlp", "steps"),
            ("resnet", "steps"),
            ("detector", "steps"),
            ("recogniser", "steps"),
            ("ocr", "pages"),
            ("llm", "requests"),
            ("churn", "allocs"),
            ("fragment", "rounds"),
        ];
        assert_eq!(counts.len(), WORKLOADS.len(), "one for each workload");
        for (name, key) in counts {
            let workload = find(name).expect("a workload");
            let error = workload
                .source(&format!("{key}=1000000000000"), 0, &Rates::free())
                .err()
                .expect("too many");
            let text = error.to_string();
            assert!(
                text.contains(key) && text.contains("expected a whole number from 1 to 1000"),
                "{text}"
            );
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for workload in WORKLOADS {
            assert_eq!(find(workload.name).unwrap().summary, workload.summary);
        }
        assert_eq!(
            find("bret").unwrap_err().to_string(),
            r#"unknown workload "bret"; did you mean bert"#
        );
    }

    #[test]
    fn defaults_are_accepted_and_documented() {
        for workload in WORKLOADS {
            workload
                .source("", 0, &Rates::free())
                .unwrap_or_else(|error| panic!("{}: {error}", workload.name));
            for param in workload.params {
                assert!(!param.help.is_empty(), "{} {}", workload.name, param.name);
                assert!(!param.unit.is_empty(), "{} {}", workload.name, param.name);
            }
        }
    }
}
