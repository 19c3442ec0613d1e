//! Cases from real problem reports: every case whose subject exists is run, the others are listed with the reason.

#[path = "cases/mod.rs"]
mod runner;
mod shared;

#[test]
fn cases() {
    let Some(root) = shared::folder("cases") else { return };
    let mut files: Vec<_> = std::fs::read_dir(&root)
        .expect("the cases folder can be read")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    files.sort();
    let mut tally = runner::Tally::default();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a case file is text");
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            runner::run_case(&serde_json::from_str(line).expect("a case is JSON"), &mut tally);
        }
    }
    for skipped in &tally.skipped {
        println!("cases: skipped {skipped}");
    }
    for argued in &tally.argued {
        println!("cases: argued {argued}");
    }
    for difference in &tally.differences {
        println!("cases: {difference}");
    }
    println!(
        "cases: {} of {}, {} checks, {} skips, {} differences",
        tally.run,
        tally.cases,
        tally.checks,
        tally.skipped.len(),
        tally.differences.len()
    );
    assert!(tally.run > 0 && tally.checks > 0, "no case of {} could be run", root.display());
    assert!(tally.differences.is_empty(), "{} differences, listed above", tally.differences.len());
}
