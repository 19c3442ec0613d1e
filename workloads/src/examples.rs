//! Recordings of ours that are built in, so that a fresh clone has real input: gzip-compressed PyTorch snapshots.
//!
//! Made by this project's own scripts with unmodified PyTorch 2.15 over a device that only keeps books.

/// Name and compressed content.
pub const ALL: &[(&str, &[u8])] = &[
    ("resnet50_b32_fp32", include_bytes!("../examples/resnet50_b32_fp32.pickle.gz")),
    (
        "bert_b64_s512_fp32_oom_16gb",
        include_bytes!("../examples/bert_b64_s512_fp32_oom_16gb.pickle.gz"),
    ),
    (
        "bert_b8_s128_fp32_python_stacks",
        include_bytes!("../examples/bert_b8_s128_fp32_python_stacks.pickle.gz"),
    ),
];
