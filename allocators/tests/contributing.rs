//! The code in CONTRIBUTING.md is that of the example, and the example runs.
//!
//! `UPDATE_EXPECT=1 cargo test -p vramlab-allocators --test contributing` writes the example's text into CONTRIBUTING.md.

#[path = "../examples/add_a_strategy.rs"]
mod add_a_strategy;

use std::path::Path;

const EXAMPLE: &str = include_str!("../examples/add_a_strategy.rs");

/// The text between `// ANCHOR: name` and `// ANCHOR_END: name`.
fn region(name: &str) -> &'static str {
    let (begin, end) = (format!("// ANCHOR: {name}\n"), format!("// ANCHOR_END: {name}\n"));
    let after =
        EXAMPLE.split_once(&begin).unwrap_or_else(|| panic!("no {begin:?} in the example")).1;
    after.split_once(&end).unwrap_or_else(|| panic!("no {end:?} in the example")).0
}

/// A text with each block of code below a mark replaced by the region that the mark names.
fn with_regions(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("<!-- region `") {
        let (name, after) = after.split_once('`').expect("a closing ` after the region's name");
        let (mark, after) = after.split_once("```rust\n").expect("a block of code below the mark");
        let (_, after) = after.split_once("```\n").expect("the block's end");
        out += &format!("{before}<!-- region `{name}`{mark}```rust\n{}```\n", region(name));
        rest = after;
    }
    out + rest
}

#[test]
fn contributing_shows_the_example_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../CONTRIBUTING.md");
    let found = std::fs::read_to_string(&path).expect("CONTRIBUTING.md is beside the crate");
    let expected = with_regions(&found);
    assert_eq!(found.matches("<!-- region `").count(), 2, "the strategy and its check");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &expected).expect("CONTRIBUTING.md can be written");
    } else {
        assert!(
            found == expected,
            "CONTRIBUTING.md is behind the example: run this test with UPDATE_EXPECT=1"
        );
    }
}

#[test]
fn the_example_runs() -> Result<(), vramlab_sim::AllocError> {
    add_a_strategy::main()
}
