//! `torch.caching` against the golden cases of the real allocator: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_format;
mod torch_subject;

use torch_subject::TorchSubject;

#[test]
fn golden_pytorch() {
    golden_format::golden("golden_pytorch", TorchSubject::for_case);
}
