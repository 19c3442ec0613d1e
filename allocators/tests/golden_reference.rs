//! The slow reference model against the golden cases of the real allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_format;
mod reference;

use golden_format::{Case, GoldenSubject, Place, Totals, compare};
use reference::{Reference, Version};

fn reference(case: &Case) -> Result<Box<dyn GoldenSubject>, String> {
    Ok(Box::new(Reference::new(Version::parse(&case.torch)?, &case.conf, case.capacity)?))
}

fn run(name: &str, place: &Place) {
    let mut totals = Totals::default();
    for folder in Case::folders(&place.root) {
        let case =
            Case::load(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        totals.add(compare(&case, reference(&case)));
    }
    println!("{name}: {totals}");
    for first in &totals.firsts {
        println!("{first}");
    }
    assert!(totals.cases > 0, "expected cases in {}, found none", place.root.display());
    assert_eq!(totals.differences, 0, "expected no difference, found {}", totals.differences);
}

#[test]
fn golden_pytorch_reference_committed() {
    run("golden_pytorch_reference (committed)", &golden_format::committed("pytorch"));
}

#[test]
fn golden_pytorch_reference() {
    match golden_format::shared("pytorch") {
        Ok(place) => run("golden_pytorch_reference", &place),
        Err(reason) => println!("golden_pytorch_reference: shared set skipped, {reason}"),
    }
}
