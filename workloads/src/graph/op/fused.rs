//! Several elementwise operators as one kernel, made by the pass `fusion`.
//!
//! | rule | what it says |
//! |---|---|
//! | `forward` | outer inputs are read, the last result and dropout masks are written; what is between is not |
//! | `saved` | what a part needs is computed again from the outer inputs, so these are saved; masks, and the result where a part needs that |
//! | `backward` | one kernel; inputs whose gradient is the same numbers, since only sums stand between them, are given the same storage |
//! | `in place` | the result may be written over the outer input that the parts would hand on in place |
//!
//! Source: how `torch.compile` and NVFuser run chains of elementwise operators (recomputation of cheap operators in backward).

use super::{Backward, Kind, Operator, Saves, Spec, Tensor};
use crate::graph::op::elementwise::F;
use crate::graph::tensor::{Role, ScopeId};

/// Where a part reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// An input of the whole.
    Outer(usize),
    /// An output of an earlier part.
    Inner(usize, usize),
}

/// An elementwise operator within.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Which.
    pub kind: Kind,
    /// What it reads.
    pub wires: Vec<Wire>,
}

/// Parts in the order in which they run; the last one's result is the whole's.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedChain {
    /// The parts.
    pub parts: Vec<Part>,
}

impl FusedChain {
    /// By-products that leave the kernel: part and output, in the order of the outputs after the result.
    pub fn asides(&self) -> Vec<(usize, usize)> {
        let has_mask = |part: &Part| matches!(part.kind, Kind::Dropout(_));
        (0..self.parts.len()).filter(|p| has_mask(&self.parts[*p])).map(|p| (p, 1)).collect()
    }

    fn outer_count(&self) -> usize {
        let wires = self.parts.iter().flat_map(|part| &part.wires);
        let places = wires.filter_map(|wire| match wire {
            Wire::Outer(i) => Some(i + 1),
            Wire::Inner(..) => None,
        });
        places.max().unwrap_or(0)
    }

    /// Outer inputs from which a wire's value is computed.
    fn need(&self, wire: Wire, needed: &mut Vec<usize>) {
        match wire {
            Wire::Outer(i) => needed.push(i),
            Wire::Inner(p, _) => {
                for wire in &self.parts[p].wires {
                    self.need(*wire, needed);
                }
            }
        }
    }

    /// The last value whose gradient is that of this one, unchanged: past sums, while nothing else reads it.
    fn same_gradient(&self, value: Wire) -> Wire {
        let mut readers = self.parts.iter().enumerate().flat_map(|(p, part)| {
            part.wires.iter().filter(|wire| **wire == value).map(move |_| (p, &part.kind))
        });
        match (readers.next(), readers.next()) {
            (Some((p, Kind::Elementwise(function))), None) if function.0 == F::Add => {
                self.same_gradient(Wire::Inner(p, 0))
            }
            _ => value,
        }
    }
}

impl Operator for FusedChain {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn outputs(&self, inputs: &[&Tensor]) -> Result<Vec<Spec>, String> {
        let wanted = self.outer_count();
        if inputs.len() != wanted {
            return Err(format!("found {} inputs, expected {wanted}", inputs.len()));
        }
        let mut made: Vec<Vec<Tensor>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let read: Vec<&Tensor> = part
                .wires
                .iter()
                .map(|wire| match wire {
                    Wire::Outer(i) => inputs[*i],
                    Wire::Inner(p, o) => &made[*p][*o],
                })
                .collect();
            let specs = part.kind.operator().outputs(&read)?;
            made.push(specs.into_iter().map(tensor).collect());
        }
        let spec = |t: &Tensor| Spec {
            shape: t.shape.clone(),
            dtype: t.dtype,
            differentiable: t.gradient,
        };
        let result = made.last().and_then(|made| made.first()).map(spec);
        let asides = self.asides().into_iter().map(|(p, o)| spec(&made[p][o]));
        Ok(result.into_iter().chain(asides).collect())
    }

    fn saves(&self) -> Saves {
        let asides = self.asides();
        let mut saves = Saves::nothing();
        for (p, part) in self.parts.iter().enumerate() {
            let of_part = part.kind.operator().saves();
            for i in of_part.inputs {
                self.need(part.wires[i], &mut saves.inputs);
            }
            for o in of_part.outputs {
                match asides.iter().position(|aside| *aside == (p, o)) {
                    Some(place) => saves.outputs.push(1 + place),
                    None if p + 1 == self.parts.len() => saves.outputs.push(o),
                    None => self.need(Wire::Inner(p, o), &mut saves.inputs),
                }
            }
        }
        for list in [&mut saves.inputs, &mut saves.outputs] {
            list.sort_unstable();
            list.dedup();
        }
        saves
    }

    fn backward(&self, at: &mut Backward<'_, '_>) {
        let g = at.gradient();
        let result = Wire::Inner(self.parts.len() - 1, 0);
        let mut given = vec![(result, g)];
        let mut writes = Vec::new();
        for i in 0..at.inputs() {
            if !at.wants(i) {
                continue;
            }
            let same_shape = at.tensor_in(i).numbers() == at.tensor_out().numbers();
            let value =
                if same_shape { self.same_gradient(Wire::Outer(i)) } else { Wire::Outer(i) };
            let known = given.iter().find(|(known, _)| *known == value).map(|(_, known)| *known);
            let mine = known.unwrap_or_else(|| at.like_input(i));
            if known.is_none() {
                given.push((value, mine));
                writes.push(mine);
            }
            at.give(i, mine);
        }
        if !writes.is_empty() {
            let mut reads = vec![g];
            reads.extend(at.saved());
            at.kernel(&reads, &writes);
        }
    }

    fn overwrites(&self) -> Option<usize> {
        let mut at = self.parts.len().checked_sub(1)?;
        loop {
            let part = &self.parts[at];
            match part.wires.get(part.kind.operator().overwrites()?)? {
                Wire::Outer(i) => return Some(*i),
                Wire::Inner(p, 0) => at = *p,
                Wire::Inner(..) => return None,
            }
        }
    }

    fn is_pointwise(&self) -> bool {
        true
    }
}

fn tensor(spec: Spec) -> Tensor {
    Tensor {
        shape: spec.shape,
        dtype: spec.dtype,
        role: Role::Activation,
        view_of: None,
        gradient: spec.differentiable,
        scope: ScopeId(0),
    }
}

impl From<FusedChain> for Kind {
    fn from(op: FusedChain) -> Self {
        Self::FusedChain(op)
    }
}
