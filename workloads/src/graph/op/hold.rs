//! A mark in the program: these tensors are still somebody's here. It does nothing; lifetimes end after it.

use super::{Backward, Forward, Operator, Spec, Tensor};

/// Local variables that go out of scope here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold;

impl Operator for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn outputs(&self, _inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        Ok(Vec::new())
    }

    fn forward(&self, at: &mut Forward<'_, '_>) {
        at.hold_inputs();
    }

    fn backward(&self, _at: &mut Backward<'_, '_>) {}
}

impl From<Hold> for super::Kind {
    fn from(op: Hold) -> Self {
        Self::Hold(op)
    }
}
