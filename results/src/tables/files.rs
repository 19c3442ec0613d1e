//! Files that an experiment names: where they lie, and all of a folder.
//!
//! | name | lies |
//! |---|---|
//! | `shared:…` | in the folder that `VRAMLAB_SHARED` names, or `../shared` |
//! | `golden:…` | where the golden tests of the allocators leave what they found: `VRAMLAB_GOLDEN`, or `target/tmp` |
//! | `example:…` | in the program |
//! | any other | there |
//!
//! A `*` in the last part of a name stands for any text: all files that match, by name. Without any the name stays as it is, as a file that is not there.

use std::path::{Path, PathBuf};

use super::cells::{Cell, What, matches};
use crate::serving::recorded;

fn folder(variable: &str, otherwise: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| PathBuf::from(otherwise), PathBuf::from)
}

/// Where files of `shared:…` lie.
pub fn shared() -> PathBuf {
    folder("VRAMLAB_SHARED", "../shared")
}

fn golden() -> PathBuf {
    folder("VRAMLAB_GOLDEN", "target/tmp")
}

/// Where a file named in an experiment lies; none if it is built in (`example:…`).
pub fn path_of(name: &str) -> Option<PathBuf> {
    Some(match name.split_once(':') {
        Some(("example", _)) => return None,
        Some(("shared", rest)) => shared().join(rest),
        Some(("golden", rest)) => golden().join(rest),
        _ => PathBuf::from(name),
    })
}

/// Why there is no such file.
pub fn absent(name: &str) -> String {
    match name.split_once(':') {
        Some(("shared", file)) => {
            format!("the recording {file} is not in {}", shared().display())
        }
        Some(("golden", file)) => format!(
            "there is no {}; cargo test -p vramlab-allocators golden_ writes it",
            golden().join(file).display()
        ),
        _ => format!("there is no file {name}"),
    }
}

/// The files that a name with a `*` stands for: the name of each without what stands behind the last `*`, and its path.
pub fn listed(pattern: &str) -> Vec<(String, String)> {
    let (before, last) = match pattern.rfind(['/', ':']) {
        Some(at) => pattern.split_at(at + 1),
        None => ("", pattern),
    };
    let folder = path_of(before).filter(|path| !path.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or_else(|| PathBuf::from(".")));
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| matches(last, name)).collect();
    names.sort_unstable();
    if names.is_empty() {
        return vec![(pattern.to_owned(), pattern.to_owned())];
    }
    let ending = last.rsplit('*').next().unwrap_or_default();
    let named = |name: &String| {
        (name.strip_suffix(ending).unwrap_or(name).to_owned(), format!("{before}{name}"))
    };
    names.iter().map(named).collect()
}

/// Files that the runs need, each once.
pub fn needed(cells: &[Cell]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for cell in cells {
        match &cell.what {
            What::Trace(name) | What::Facts(name) | What::Verify(name) => all.extend(path_of(name)),
            What::Measured(name) => {
                all.extend(recorded::files(name).iter().filter_map(|name| path_of(name)));
            }
            What::Workload { .. } | What::Ops(_) => {}
        }
        let device = cell.device.as_deref().filter(|device| device.contains(['/', '.']));
        all.extend(device.map(|device| Path::new(device).to_owned()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_files_of_a_folder_in_order() {
        let folder = tempfile::tempdir().expect("folder");
        for name in ["b.json", "a.json", "a.pickle.gz", "c.txt"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let root = folder.path().display().to_string();
        let names = |pattern: &str| {
            let found = listed(&format!("{root}/{pattern}"));
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names("*.json"), ["a", "b"]);
        assert_eq!(names("a*.gz"), ["a.pickle"]);
        assert_eq!(names("b*"), ["b.json"]);
        let none = format!("{root}/*.none");
        assert_eq!(listed(&none), [(none.clone(), none.clone())]);
        assert_eq!(listed(&format!("{root}/b*"))[0].1, format!("{root}/b.json"));
    }
}
