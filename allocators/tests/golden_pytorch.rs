//! `torch.caching` against the golden cases of the real allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_format;
mod torch_subject;

use golden_format::{Case, Place, Totals, compare};
use torch_subject::TorchSubject;

fn run(name: &str, place: &Place) {
    let mut totals = Totals::default();
    for folder in Case::folders(&place.root) {
        let case =
            Case::load(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        totals.add(compare(&case, TorchSubject::for_case(&case)));
    }
    println!("{name}: {totals}");
    for first in &totals.firsts {
        println!("{first}");
    }
    assert!(totals.cases > 0, "expected cases in {}, found none", place.root.display());
    assert_eq!(totals.differences, 0, "expected no difference, found {}", totals.differences);
}

#[test]
fn golden_pytorch_committed() {
    run("golden_pytorch (committed)", &golden_format::committed("pytorch"));
}

#[test]
fn golden_pytorch() {
    match golden_format::shared("pytorch") {
        Ok(place) => run("golden_pytorch", &place),
        Err(reason) => println!("golden_pytorch: skipped, {reason}"),
    }
}
