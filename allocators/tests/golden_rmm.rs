//! RMM's pool, arena and binning against the golden cases of the real resources, and against a model that searches lists as the real ones do.
#![forbid(unsafe_code)]

mod golden_cases;
mod rmm_model;
mod rmm_subject;

use golden_cases::{Subject, golden, golden_called};
use rmm_model::Model;
use rmm_subject::Rmm;

#[test]
fn golden_rmm() {
    golden("rmm", |case| Some(Box::new(Rmm::new(case, "26.06")?)));
}

/// 26.08 records more events, and is the same in all else.
#[test]
fn golden_rmm_26_08() {
    golden_called("golden_rmm_26_08", "rmm", |case| Some(Box::new(Rmm::new(case, "26.08")?)));
}

/// What the random cases below are held to is itself held to the recordings.
#[test]
fn golden_rmm_of_the_model() {
    golden_called("golden_rmm_of_the_model", "rmm", |case| Some(Box::new(Model::new(case)?)));
}

/// Small devices and pools, so that lists are merged, growth is halved and refused, and superblocks change hands.
#[test]
fn random_cases_agree_with_the_model() {
    let (mut cases, mut ops) = (0, 0);
    for seed in 0..600 {
        let case = rmm_model::random_case(seed);
        let mut strategy = Rmm::new(&case, "26.08").expect("a resource");
        let mut model = Model::new(&case).expect("a resource");
        let (found, want) = (strategy.init(), model.init());
        assert_eq!(found, want, "{}: {:?}", case.name, case.value("config"));
        if want.is_some_and(|row| row[0] == "X") {
            continue;
        }
        for (at, op) in case.list("ops").iter().enumerate() {
            let op = op.as_array().expect("an op is a list");
            let (found, want) = (strategy.op(op), model.op(op));
            assert_eq!(found, want, "{}, op {at} {op:?}: {:?}", case.name, case.value("config"));
        }
        cases += 1;
        ops += case.list("ops").len();
    }
    println!("rmm: {cases} random cases, {ops} ops, 0 differences from the model");
}
