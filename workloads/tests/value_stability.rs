//! What every workload yields with default parameters and seed 0 is pinned: the first records and one digest over all ops.
//!
//! A change here moves published figures: say so in the CHANGELOG under "Numbers moved", with the size of the move.
//! The digest is FNV-1a, 64 bits, over every step's fields as little-endian numbers ([`Digest`]), in the order of the code below;
//! it does not depend on Debug or on enum layout.

use vramlab_sim::device::profile::device;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{WORKLOADS, find};

fn rates() -> Rates {
    Rates::of(&device("a100-80gb").expect("built in"))
}

/// FNV-1a over numbers.
struct Digest(u64);

impl Digest {
    fn number(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|byte| self.number(u64::from(byte)));
    }
}

/// Name of the op and its fields, as numbers; texts of sites and marks are added by the caller.
fn fields(op: &Op) -> Vec<u64> {
    let stream = |s: &vramlab_sim::StreamId| u64::from(s.0);
    match op {
        Op::Alloc { id, stream: s, size, .. } => vec![u64::from(id.0), stream(s), *size],
        Op::Free { id, stream: s } => {
            vec![u64::from(id.0), s.as_ref().map_or(u64::MAX, stream)]
        }
        Op::RecordStream { id, stream: s } => vec![u64::from(id.0), stream(s)],
        Op::Work { stream: s, duration } => vec![stream(s), *duration],
        Op::Copy { stream: s, direction, bytes } => {
            vec![stream(s), direction_number(*direction), *bytes]
        }
        Op::Event { event, stream: s } | Op::Wait { event, stream: s } => {
            vec![u64::from(event.0), stream(s)]
        }
        Op::Sync { stream: s } => vec![s.as_ref().map_or(u64::MAX, stream)],
        Op::Request { req } | Op::Response { req } => vec![*req],
        Op::KvNew { seq } | Op::KvMore { seq } | Op::KvFree { seq } => vec![u64::from(seq.0)],
        Op::EmptyCache | Op::Mark { .. } => vec![],
        other => panic!("no synthetic workload yields {other:?}: add it here"),
    }
}

fn direction_number(direction: Direction) -> u64 {
    match direction {
        Direction::HostToDevice => 0,
        Direction::DeviceToHost => 1,
        other => panic!("no synthetic workload copies {other:?}: add it here"),
    }
}

/// The first `lines` records that begin with a word of `shown` (all, if it is empty) as text, and the digest over all.
fn walk(source: &mut dyn Source, lines: usize, shown: &str) -> (Vec<String>, u64) {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    let (mut first, mut answer) = (Vec::new(), Answered::Done);
    loop {
        let mut line = match source.next(Nanos(0), std::mem::take(&mut answer)).unwrap() {
            Step::End => return (first, digest.0),
            Step::WaitUntil(time) => {
                digest.text("wait until");
                digest.number(time.0);
                format!("wait until {}", time.0)
            }
            Step::Op(op) => {
                digest.text(op.name());
                let fields = fields(&op);
                fields.iter().for_each(|value| digest.number(*value));
                let mut line = format!("{} {fields:?}", op.name());
                if let Op::Alloc { site: name, .. } | Op::Mark { name } = op {
                    let text = source.text(name);
                    digest.text(text);
                    line += &format!(" {text}");
                }
                if let Op::KvNew { .. } | Op::KvMore { .. } = op {
                    // a cache that finds nothing and has room for all
                    answer = Answered::Slots { hit: 0, blocks: 0 };
                    let ask = source.kv();
                    digest.number(ask.tokens);
                    let numbers =
                        ask.keys.iter().flat_map(|run| [run.stream, run.first, run.count]);
                    numbers.for_each(|number| digest.number(number));
                    line += &format!(" {}", ask.tokens);
                }
                line
            }
        };
        for used in source.uses() {
            digest.number(u64::from(used.id.0));
            digest.number(u64::from(used.write));
            line += &format!(" {}{}", if used.write { "w" } else { "r" }, used.id);
        }
        let wanted = shown.is_empty() || shown.split(' ').any(|word| line.starts_with(word));
        if wanted && first.len() < lines {
            first.push(line);
        }
    }
}

fn check(name: &str, shown: &str, first_wanted: &[&str], digest_wanted: u64) {
    let mut source = find(name).and_then(|workload| workload.source("", 0, &rates())).unwrap();
    let (first, digest) = walk(&mut *source, first_wanted.len(), shown);
    assert_eq!(first, first_wanted, "{name}: first records");
    assert_eq!(digest, digest_wanted, "{name}: digest {digest:#018x}");
}

#[test]
fn value_stability_bert() {
    check(
        "bert",
        "",
        &[
            "mark [] model to device",
            "alloc [0, 0, 93763584] embeddings.words",
            "copy [0, 0, 93763584]",
            "alloc [1, 0, 1572864] embeddings.positions",
            "copy [0, 0, 1572864]",
            "alloc [2, 0, 6144] embeddings.types",
            "copy [0, 0, 6144]",
            "alloc [3, 0, 3072] embeddings.norm.weight",
        ],
        0x4b70_9f62_5f86_7057,
    );
}

#[test]
fn value_stability_gpt2() {
    check(
        "gpt2",
        "mark work",
        &["mark [] model to device", "mark [] step 0 forward"],
        0xa2b2_86e5_3453_ee5e,
    );
}

#[test]
fn value_stability_llama() {
    check(
        "llama",
        "mark work",
        &["mark [] model to device", "mark [] step 0 forward"],
        0xacc7_f270_4397_e91a,
    );
}

#[test]
fn value_stability_varlen() {
    check(
        "varlen",
        "",
        &[
            "mark [] model to device",
            "alloc [0, 0, 93763584] embeddings.words",
            "copy [0, 0, 93763584]",
            "alloc [1, 0, 3145728] embeddings.positions",
            "copy [0, 0, 3145728]",
            "alloc [2, 0, 6144] embeddings.types",
            "copy [0, 0, 6144]",
            "alloc [3, 0, 3072] embeddings.norm.weight",
        ],
        0x711b_49eb_a6fe_1477,
    );
}

#[test]
fn value_stability_ocr() {
    check(
        "ocr",
        "wait mark",
        &[
            "mark [] models to device",
            "wait until 100476533",
            "mark [] request 0 detect 960x416",
            "mark [] request 0 recognise 67",
            "wait until 360527056",
            "mark [] request 1 detect 960x448",
            "mark [] request 1 recognise 52",
            "wait until 711308161",
        ],
        0x4a5d_2596_4236_f7aa,
    );
}

#[test]
fn value_stability_mlp() {
    check(
        "mlp",
        "mark alloc",
        &[
            "mark [] model to device",
            "alloc [0, 0, 12845056] layer.0.weight",
            "alloc [1, 0, 16384] layer.0.bias",
        ],
        0xa0d9_e64d_9fce_b0f9,
    );
}

#[test]
fn value_stability_resnet() {
    check(
        "resnet",
        "mark alloc",
        &[
            "mark [] model to device",
            "alloc [0, 0, 37632] conv1.weight",
            "alloc [1, 0, 256] bn1.weight",
            "alloc [2, 0, 256] bn1.bias",
            "alloc [3, 0, 256] bn1.running_mean",
        ],
        0x42e7_c0e2_9bf3_5e15,
    );
}

#[test]
fn value_stability_detector() {
    check(
        "detector",
        "mark",
        &["mark [] model to device", "mark [] step 0 forward"],
        0x18f2_f678_8d6f_3d67,
    );
}

#[test]
fn value_stability_recogniser() {
    check(
        "recogniser",
        "mark",
        &["mark [] model to device", "mark [] step 0 forward"],
        0x9db1_6fa5_1482_528c,
    );
}

#[test]
fn value_stability_churn() {
    check(
        "churn",
        "",
        &[
            "mark [] allocation 0",
            "alloc [0, 0, 15940] churn",
            "work [0, 5000] w0",
            "alloc [1, 0, 411664] churn",
            "work [0, 5000] w1",
            "alloc [2, 0, 577012] churn",
            "work [0, 5000] w2",
            "alloc [3, 0, 501432] churn",
        ],
        0xd2c0_64d4_5cc4_14cf,
    );
}

#[test]
fn value_stability_fragment() {
    check(
        "fragment",
        "",
        &[
            "mark [] round 0",
            "alloc [0, 0, 4096] fragment",
            "work [0, 5000] w0",
            "free [0, 18446744073709551615]",
            "alloc [0, 0, 16384] fragment",
            "work [0, 5000] w0",
            "free [0, 18446744073709551615]",
            "alloc [0, 0, 8192] fragment",
        ],
        0xfc91_4d5c_4d01_4295,
    );
}

#[test]
fn value_stability_llm() {
    check(
        "llm",
        "alloc kv_new",
        &[
            "alloc [0, 0, 16060522496] weights r0",
            "alloc [1, 0, 939524096] activations r0",
            "kv_new [0] 1 r0",
            "kv_new [0] 2303 r0",
            "kv_new [0] 11011 r0",
            "kv_new [0] 5088 r0",
        ],
        0xf335_6653_61ea_4e14,
    );
}

#[test]
fn every_workload_is_pinned() {
    let pinned = [
        "bert",
        "gpt2",
        "llama",
        "varlen",
        "ocr",
        "llm",
        "churn",
        "fragment",
        "mlp",
        "resnet",
        "detector",
        "recogniser",
    ];
    for workload in WORKLOADS {
        assert!(pinned.contains(&workload.name), "{} has no value_stability test", workload.name);
    }
}

/// The same seed gives the same ops, another seed others (where something is drawn).
#[test]
fn seeds_decide() {
    for (name, text, drawn) in [
        ("bert", "steps=1,layers=1", false),
        ("gpt2", "steps=1,layers=1", false),
        ("llama", "steps=1,layers=1", false),
        ("varlen", "steps=3,layers=1,mode=lognormal", true),
        ("ocr", "pages=2", true),
        ("llm", "requests=3", true),
        ("churn", "allocs=100", true),
        ("fragment", "", false),
    ] {
        let digest =
            |seed| walk(&mut *find(name).unwrap().source(text, seed, &rates()).unwrap(), 0, "").1;
        assert_eq!(digest(1), digest(1), "{name}");
        assert_eq!(digest(1) != digest(2), drawn, "{name}");
    }
}
