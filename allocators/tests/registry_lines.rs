//! Lines of the registry: each is whole, and its options are read as everywhere.

use vramlab_allocators::{STRATEGIES, registry};

#[test]
fn registry_lines_are_complete_and_unknown_options_are_refused() {
    for strategy in STRATEGIES {
        let name = strategy.name;
        assert_eq!(vramlab_allocators::find(name).map(|s| s.name), Ok(name));
        assert!(name.split_once('.').is_some(), "{name}: expected family.name");
        assert!(!strategy.summary.is_empty() && !strategy.summary.ends_with('.'), "{name}");
        let refused = registry::check(&format!("{name}:no_such=1").parse().expect("a spec"));
        let error = refused.expect_err("an unknown option").to_string();
        assert!(error.contains("no_such"), "{name}: {error}");
        assert!((strategy.inert)(&Default::default()).is_empty(), "{name}: inert without options");
        for option in strategy.options {
            // the default may be a word that is no value, but the name must be known
            let spec = format!("{name}:{}='{}'", option.name, option.default);
            let built = registry::check(&spec.parse().expect(&spec));
            let unknown = built.err().filter(|error| error.to_string().contains("has no option"));
            assert_eq!(unknown, None, "{spec}");
            assert!(!option.help.is_empty(), "{spec}");
        }
    }
}

/// Every truth value is written in the same ways, and never in another.
#[test]
fn truth_values_are_read_alike_everywhere() {
    let mut tried = 0;
    for strategy in STRATEGIES {
        let switches = strategy.options.iter().filter(|o| matches!(o.default, "true" | "false"));
        for option in switches {
            let check = |value: &str| {
                let text = format!("{}:{}={value}", strategy.name, option.name);
                registry::check(&text.parse().expect("a spec"))
            };
            for value in ["true", "True", "TRUE", "1", "on", "false", "False", "FALSE", "0", "off"]
            {
                let read = check(value);
                assert!(read.is_ok(), "{}: {}={value}: {read:?}", strategy.name, option.name);
            }
            let error = check("maybe").expect_err(option.name).to_string();
            assert!(error.contains("true or false") || error.contains("True or False"), "{error}");
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried} switches");
}
