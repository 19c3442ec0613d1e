//! The page as one text: markup, style and script of their own files, and the data.
//!
//! | rule | what it says |
//! |---|---|
//! | `closed` | nothing is loaded from anywhere, and nothing runs but the script below: a content-security policy names script and style by their SHA-256 |
//! | `data` | what comes from a recording stands in two blocks that a browser does not run: JSON without `<`, `>` and `&`, and base64 of zlib; the script puts texts in as text, never as markup |

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

const MARKUP: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In the order in which they are run, as one.
const SCRIPT: [&str; 7] = [
    include_str!("page/data.js"),
    include_str!("page/raster.js"),
    include_str!("page/timeline.js"),
    include_str!("page/map.js"),
    include_str!("page/words.js"),
    include_str!("page/look.js"),
    include_str!("page/page.js"),
];

/// Fills the page.
pub fn page(data: &impl Serialize, columns: &[u8]) -> std::io::Result<String> {
    let script = SCRIPT.concat();
    let json = serde_json::to_string(data)?
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e");
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::new(9));
    packed.write_all(columns)?;
    let packed = BASE64.encode(packed.finish()?);
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        BASE64.encode(Sha256::digest(&script)),
        BASE64.encode(Sha256::digest(STYLE)),
    );
    let parts = [
        ("POLICY", &*policy),
        ("STYLE", STYLE),
        ("DATA", &json),
        ("COLUMNS", &packed),
        ("SCRIPT", &script),
    ];
    let mut page = String::with_capacity(json.len() + packed.len() + script.len() + 40_000);
    let mut rest = MARKUP;
    for (name, text) in parts {
        let (before, after) = rest
            .split_once(&format!("{{{{{name}}}}}"))
            .ok_or_else(|| std::io::Error::other(format!("the page has no place for {name}")))?;
        page += before;
        page += text;
        rest = after;
    }
    Ok(page + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_ends_no_block_and_the_policy_names_what_is_there() {
        let page = page(&["</script><b>&amp;"], b"abc").expect("filled");
        assert!(page.contains(r#"["\u003c/script\u003e\u003cb\u003e\u0026amp;"]"#), "{page}");
        assert!(!page.contains("{{"), "every place is filled");
        for (open, close, of) in
            [("<style>", "</style>", "style"), ("<script>", "</script>", "script")]
        {
            let (_, text) = page.split_once(open).expect("has it");
            let (text, _) = text.split_once(close).expect("ends");
            let want = format!("{of}-src 'sha256-{}'", BASE64.encode(Sha256::digest(text)));
            assert!(page.contains(&want), "{want}");
        }
        for loads in ["http://", "https://", "innerHTML", "eval("] {
            assert!(!page.contains(loads), "{loads}");
        }
    }
}
