//! Random programs: how many, from which seed, and what is printed of one that fails.

use std::fmt::Debug;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Runs `cases` programs (or as many as `PROPTEST_CASES` says), always the same ones. Of one that fails, the shortest program found is printed,
/// ready to paste.
pub(crate) fn programs<P: Strategy>(
    spec: &str,
    cases: u32,
    programs: &P,
    run: impl Fn(&P::Value) -> Result<(), String>,
) where
    P::Value: Debug,
{
    let config = Config { failure_persistence: None, ..Config::default() };
    let config = match std::env::var("PROPTEST_CASES") {
        Ok(_) => config,
        Err(_) => Config { cases, ..config },
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let tried = TestRunner::new_with_rng(config, rng)
        .run(programs, |program| run(&program).map_err(TestCaseError::fail));
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, program)) => {
            panic!("{spec}: {why}\nto paste: run({spec:?}, &{program:?})")
        }
        Err(error) => panic!("{spec}: {error}"),
    }
}
