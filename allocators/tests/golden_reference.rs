//! The slow reference model against the golden cases of the real allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_format;
mod reference;

use golden_format::{Case, GoldenSubject};
use reference::{Reference, Version};

fn reference(case: &Case) -> Result<Box<dyn GoldenSubject>, String> {
    Ok(Box::new(Reference::new(Version::parse(&case.torch)?, &case.conf, case.capacity)?))
}

#[test]
fn golden_pytorch_reference() {
    golden_format::golden("golden_pytorch_reference", reference);
}
