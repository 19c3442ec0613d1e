//! A test for each rule of [`super::pool`], named after it.

use vramlab_sim::allocator::{AllocError, Notice, Placement, Reply};

use crate::parts::lab::Lab;

const MIB: u64 = 1 << 20;

fn lab() -> Lab {
    Lab::new("cupy.pool", 64 * MIB)
}

fn mallocs(lab: &mut Lab) -> Vec<u64> {
    let calls = lab.calls();
    let calls = calls.iter().filter(|call| call.starts_with("cudaMalloc,"));
    calls.filter_map(|call| call.split(',').nth(3)?.parse().ok()).collect()
}

#[test]
fn round() {
    let mut lab = lab();
    assert_eq!([1, 512, 513, 1025].map(|size| lab.alloc(size, 0).size), [512, 512, 1024, 1536]);
    let null = lab.alloc(0, 0);
    assert_eq!((null.address, null.size, lab.usage().reserved), (0, 0, 3584));
}

#[test]
fn exact_growth() {
    let mut lab = lab();
    for size in [1, 3 * MIB + 1, 100] {
        lab.alloc(size, 0);
    }
    assert_eq!(mallocs(&mut lab), [512, 3 * MIB + 512, 512]);
}

#[test]
fn best_fit() {
    let mut lab = lab();
    let chunks = [8192, 2048, 4096].map(|size| lab.alloc(size, 0));
    chunks.into_iter().for_each(|chunk| lab.free(chunk));
    let low = lab.alloc(1536, 0);
    assert_eq!(lab.place(low), (1, 0), "the smallest, at its low end");
    let next = lab.alloc(1536, 0);
    assert_eq!(lab.place(next), (2, 0));
    let rest = lab.alloc(512, 0);
    assert_eq!(lab.place(rest), (1, 1536), "what the first left free");
}

#[test]
fn no_threshold() {
    let mut lab = lab();
    let large = lab.alloc(32 * MIB, 0);
    lab.free(large);
    assert_eq!((lab.alloc(1, 0).address, lab.usage().allocated), (large.address, 512));
    let rest = lab.alloc(32 * MIB - 1024, 0);
    assert_eq!((lab.place(rest), lab.usage().reserved), ((0, 512), 32 * MIB));
    let last = lab.alloc(1, 0);
    assert_eq!(lab.place(last), (0, 32 * MIB - 512));
}

#[test]
fn ties() {
    let mut lab = lab();
    let chunks = [4096; 3].map(|size| lab.alloc(size, 0));
    [2, 0, 1].into_iter().for_each(|at| lab.free(chunks[at]));
    let taken = [4096; 3].map(|size| lab.alloc(size, 0)).map(|placement| placement.address);
    assert_eq!(taken, chunks.map(|placement| placement.address));
}

/// Four chunks of one device allocation.
fn quarters(lab: &mut Lab) -> [Placement; 4] {
    let whole = lab.alloc(4 * MIB, 0);
    lab.free(whole);
    [MIB; 4].map(|size| lab.alloc(size, 0))
}

#[test]
fn coalesce() {
    let mut lab = lab();
    let [a, b, c, d] = quarters(&mut lab);
    let beside = lab.alloc(MIB, 0);
    for chunk in [a, c, b, beside] {
        lab.free(chunk);
    }
    assert_eq!(lab.counter("n_free_blocks"), 2, "a, b and c are one, the other allocation another");
    assert_eq!(lab.alloc(3 * MIB, 0).address, a.address);
    lab.free(d);
    assert_eq!(lab.alloc(MIB, 0).address, d.address, "of two, the lower");
}

#[test]
fn own_stream() {
    let mut lab = lab();
    let a = lab.alloc(MIB, 1);
    lab.free(a);
    lab.alloc(MIB, 2);
    assert_eq!(mallocs(&mut lab).len(), 2, "a free chunk of stream 1 is none for stream 2");
    let b = lab.alloc(MIB, 1);
    assert_eq!((b.address, lab.calls().len()), (a.address, 0));
    lab.free_on(b, 2);
    let joined = ["cudaEventRecord,,,0,s2,1", "cudaStreamWaitEvent,,,0,s1,1"];
    assert_eq!(lab.calls(), joined, "the user's part, not the pool's");
    assert_eq!(lab.alloc(MIB, 1).address, a.address, "it is still a chunk of stream 1");
    let streams: Vec<u32> = lab.segments().iter().map(|segment| segment.stream.0).collect();
    assert_eq!(streams, [1, 2]);
}

#[test]
fn free_all_blocks() {
    let mut lab = lab();
    let [a, b, ..] = quarters(&mut lab);
    let whole = [1, 2].map(|stream| lab.alloc(2 * MIB, stream));
    [a, b].into_iter().chain(whole).for_each(|chunk| lab.free(chunk));
    assert_eq!(lab.tell(Notice::EmptyCache), Ok(Reply::Done));
    assert_eq!((lab.counter("total_bytes"), lab.counter("frees")), (4 * MIB, 2));
    assert_eq!(lab.alloc(2 * MIB, 0).address, a.address, "the chunk with live parts stays");
    assert_eq!(lab.tell(Notice::Trim { keep: 0 }), Ok(Reply::Unsupported));
}

#[test]
fn retry() {
    let mut lab = lab();
    let cached = [20, 30].map(|mib| lab.alloc(mib * MIB, mib as u32));
    cached.into_iter().for_each(|chunk| lab.free(chunk));
    lab.alloc(60 * MIB, 0);
    assert_eq!(mallocs(&mut lab)[2..], [60 * MIB, 60 * MIB], "chunks of all streams went back");
    let small = lab.alloc(2 * MIB, 0);
    lab.free(small);
    let numbers = lab.refusal(10 * MIB, 0);
    assert_eq!((numbers.asked, numbers.device_free, numbers.limit), (10 * MIB, 4 * MIB, None));
    assert_eq!(mallocs(&mut lab)[1..], [10 * MIB; 3], "three tries of the same size");
    assert_eq!(lab.usage().reserved, 60 * MIB, "and they stay given back");
}

#[test]
fn limit() {
    let mut lab = Lab::new("cupy.pool:limit=10MiB", 64 * MIB);
    let [a, _b] = [4, 6].map(|mib| lab.alloc(mib * MIB, 0));
    lab.calls();
    let numbers = lab.refusal(1, 0);
    assert_eq!((numbers.limit, numbers.reserved), (Some(10 * MIB), 10 * MIB), "it may be reached");
    assert!(lab.calls().is_empty(), "the device is not asked");
    lab.free(a);
    let part = lab.alloc(MIB, 0);
    assert_eq!((lab.refusal(MIB, 1).largest_free, part.address), (3 * MIB, a.address));
    let mut lab = Lab::new("cupy.pool:limit=0", 64 * MIB);
    assert_eq!(lab.alloc(60 * MIB, 0).size, 60 * MIB);
}

#[test]
fn limit_reclaims() {
    let mut lab = Lab::new("cupy.pool:limit=10MiB", 64 * MIB);
    let [a, b] = [4, 6].map(|mib| lab.alloc(mib * MIB, mib as u32));
    lab.free(a);
    let c = lab.alloc(3 * MIB, 0);
    assert_eq!(lab.usage().reserved, 9 * MIB);
    lab.free(c);
    lab.calls();
    let numbers = lab.refusal(5 * MIB, 0);
    assert_eq!((numbers.reserved, numbers.limit), (6 * MIB, Some(10 * MIB)), "given back in vain");
    assert!(mallocs(&mut lab).is_empty());
    lab.free(b);
    let mut old = Lab::new("cupy.pool:limit=10MiB,reclaim_on_limit=false", 64 * MIB);
    let a = old.alloc(6 * MIB, 0);
    old.free(a);
    assert_eq!(old.refusal(7 * MIB, 0).reserved, 6 * MIB);
}

#[test]
fn limit_too_small() {
    let mut lab = Lab::new("cupy.pool:limit=10MiB", 64 * MIB);
    let a = lab.alloc(4 * MIB, 0);
    lab.free(a);
    assert_eq!(lab.refusal(10 * MIB + 1, 0).reserved, 4 * MIB, "refused at once");
    assert_eq!(lab.alloc(10 * MIB, 0).size, 10 * MIB);
}

#[test]
fn lowered_limit() {
    let mut lab = lab();
    let [a, _b] = [8, 8].map(|mib| lab.alloc(mib * MIB, 0));
    lab.free(a);
    lab.tell(Notice::Set { key: "limit", value: "4MiB" }).expect("a limit");
    assert_eq!((lab.usage().reserved, lab.counter("get_limit")), (16 * MIB, 4 * MIB));
    assert_eq!(lab.alloc(8 * MIB, 0).address, a.address);
    let bad = lab.tell(Notice::Set { key: "limit", value: "much" });
    assert!(matches!(bad, Err(AllocError::BadSetting(_))), "{bad:?}");
    assert_eq!(lab.tell(Notice::Set { key: "no_such", value: "1" }), Ok(Reply::Unsupported));
}

#[test]
fn fraction() {
    let mut lab = Lab::new("cupy.pool:limit=12.5%", 64 * MIB + 4);
    lab.alloc(1, 0);
    assert_eq!(lab.counter("get_limit"), 8 * MIB, "8 MiB and half a byte");
    let mut lab = Lab::new("cupy.pool:limit=0%", 64 * MIB);
    assert_eq!((lab.alloc(60 * MIB, 0).size, lab.counter("get_limit")), (60 * MIB, 0));
}

#[test]
fn environment() {
    let mut lab = Lab::new("cupy.pool:CUPY_GPU_MEMORY_LIMIT=50%", 64 * MIB);
    assert_eq!(lab.refusal(33 * MIB, 0).limit, Some(32 * MIB));
    let spec = "cupy.pool:CUPY_GPU_MEMORY_LIMIT=1GiB".parse().expect("a spec");
    let error = crate::build(&spec).err().expect("a unit").to_string();
    assert!(error.contains("\"1GiB\", expected bytes without a unit"), "{error}");
}

#[test]
fn past_2_64() {
    let mut lab = lab();
    for size in [u64::MAX, u64::MAX - 510] {
        assert!(matches!(lab.try_alloc(size, 0), Err(AllocError::InvalidSize { .. })), "{size}");
    }
    lab.refusal(u64::MAX - 511, 0);
}
