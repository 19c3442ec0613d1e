//! The two networks of the service as graphs, and the programs of every shape that they meet.

use crate::graph::models::text_detector::TextDetector;
use crate::graph::models::text_recogniser::{CLASSES, TextRecogniser};
use crate::graph::passes::{self, PassError};
use crate::graph::plan::{ConvSpace, Inputs, Release, Run};
use crate::graph::programs::{Ids, Programs};
use crate::graph::{DType, Graph, Plan};
use crate::rates::Rates;

/// How the networks are run.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Of weights and activations.
    pub dtype: DType,
    /// Norms and ReLUs are part of convolutions.
    pub fused: bool,
    /// When dead tensors are freed.
    pub release: Release,
    /// Convolutions' workspace.
    pub conv_space: ConvSpace,
    /// Inputs are copied on a stream of their own.
    pub beside: bool,
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Which {
    Detector,
    Recogniser,
}

/// Both networks.
pub(super) struct Networks {
    detector: Programs,
    recogniser: Programs,
}

/// Two extents as one key.
pub(super) fn key([a, b]: [u64; 2]) -> u64 {
    a << 32 | b
}

fn pair(key: u64) -> [u64; 2] {
    [key >> 32, key & u64::from(u32::MAX)]
}

impl Running {
    fn plan(&self, graph: Graph, inputs: Inputs, results_held: bool) -> Result<Plan, PassError> {
        let mut run = Run {
            train: false,
            inputs,
            inputs_cast: true,
            results_held,
            release: self.release,
            conv_space: self.conv_space,
            ..Run::default()
        };
        run.spread.inputs_beside = self.beside;
        let mut plan = Plan { graph, run };
        if self.fused {
            passes::apply(&mut plan, &passes::parse("fold")?)?;
        }
        Ok(plan)
    }

    /// A page of this height and width: the map is dropped when it is read, then the page.
    fn detector(&self, key: u64) -> Result<Plan, PassError> {
        let net = TextDetector { batch: 1, size: pair(key), dtype: self.dtype, train: false };
        self.plan(net.graph()?, Inputs::After, false)
    }

    /// So many lines of this width: lines and scores live until their successors are there.
    fn recogniser(&self, key: u64) -> Result<Plan, PassError> {
        let ([batch, width], dtype) = (pair(key), self.dtype);
        let (classes, symbols) = (CLASSES, 1);
        let net = TextRecogniser { batch, width, classes, symbols, dtype, train: false };
        self.plan(net.graph()?, Inputs::Replaced, true)
    }
}

impl Networks {
    /// Those that are run so.
    ///
    /// # Errors
    /// When they cannot be.
    pub(super) fn new(running: &Running, rates: Rates) -> Result<Self, PassError> {
        let (a, b) = (running.clone(), running.clone());
        let make = Box::new(move |key| a.detector(key));
        let mut detector = Programs::new(make, key([32, 32]), rates)?;
        let make = Box::new(move |key| b.recogniser(key));
        let mut recogniser = Programs::new(make, key([1, 32]), rates)?;
        let first = detector.fixed_ids();
        let others = first + recogniser.fixed_ids();
        detector.set_ids(Ids { fixed: 0, others });
        recogniser.set_ids(Ids { fixed: first, others });
        Ok(Self { detector, recogniser })
    }

    pub(super) fn get(&mut self, which: Which) -> &mut Programs {
        match which {
            Which::Detector => &mut self.detector,
            Which::Recogniser => &mut self.recogniser,
        }
    }

    /// Is this buffer a weight of one of them?
    pub(super) fn is_weight(&self, id: u32) -> bool {
        self.detector.is_model(id) || self.recogniser.is_model(id)
    }

    /// All but the weights is dropped, by somebody else.
    pub(super) fn forget(&mut self) {
        self.detector.forget_batch();
        self.recogniser.forget_batch();
    }
}
