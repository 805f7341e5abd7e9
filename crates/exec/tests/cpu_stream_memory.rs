//! What is allocated while a derived weight is made. The only test of its binary: it counts every allocation.

use spinec_exec::cpu::{Capacity, CpuRuntime, Streaming};
use spinec_exec::runtime::{Runtime, Tables};
use spinec_ir::interp::WeightStore;
use spinec_ir::ir::{WeightId, text};
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request goes to the system's allocator as it came; counting touches no memory it gives out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 32_768;
const WIDTH: usize = 256;
const MIB: usize = 1 << 20;

const MODULE: &str = r#"spinec-ir 1
module "m" numerics=bf16

weight 0 "head" : bf16[32768, 256]
weight 1 "norm" : bf16[256]
weight 2 "write" : bf16[16, 256]

func "f"
  input "x" = %0 : bf16[1, 16]
  %1 = weight() {weight=0} : bf16[32768, 256]
  %2 = weight() {weight=1} : bf16[256]
  %3 = cast(%1) {dtype=f32} : f32[32768, 256]
  %4 = mul(%3, %2) : f32[32768, 256]
  %5 = weight() {weight=2} : bf16[16, 256]
  %6 = linear(%4, %5) {acc=f32} : f32[32768, 16]
  %7 = cast(%6) {dtype=bf16} : bf16[32768, 16]
  %8 = linear(%0, %7) {acc=f32} : bf16[1, 32768]
  return "y" = %8
"#;

struct Store;

impl WeightStore for Store {
    fn weight(&self, id: WeightId, index: &[i64]) -> Result<Tensor, String> {
        self.rows(id, index, 0..[ROWS, WIDTH, 16][id.index()])
    }

    fn rows(&self, id: WeightId, _: &[i64], rows: Range<usize>) -> Result<Tensor, String> {
        let width = if id.index() == 1 { 1 } else { WIDTH };
        let x = (rows.start * width..rows.end * width).map(|i| (i % 251) as f32 - 125.0).collect();
        let shape = if id.index() == 1 { vec![rows.len()] } else { vec![rows.len(), width] };
        Tensor::new(DType::BF16, shape, Data::F32(x)).ok_or_else(|| "it fills its shape".into())
    }
}

/// Most bytes allocated at once while the function is prepared, beyond those from before.
fn peak(streaming: Streaming) -> (usize, usize) {
    let module = text::parse(MODULE).unwrap_or_else(|e| panic!("{:?}", e.first()));
    let tables = Tables { weights: module.weights.clone(), states: Vec::new() };
    let room = Capacity { positions: 1, requests: 1 };
    let mut runtime = CpuRuntime::new(&tables, Box::new(Store), 2, room).unwrap_or_else(|e| panic!("{e}"));
    runtime.set_streaming(streaming);
    let program = runtime.add(module).unwrap_or_else(|e| panic!("{e}"));
    let x = Tensor::zeros(DType::BF16, vec![1, 16]);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    runtime.prepare(program, 0, &[&x], 0).unwrap_or_else(|e| panic!("{e}"));
    (MOST.load(Ordering::Relaxed) - before, NOW.load(Ordering::Relaxed) - before)
}

#[test]
fn intermediates_of_a_streamed_weight_are_bounded() {
    const TRANSIENT: usize = 2 * MIB;
    // What stays: the packed form, of bf16 bits.
    let form = 2 * ROWS * 16;
    let whole_intermediate = 4 * ROWS * WIDTH;
    let streaming = Streaming { direct: MIB as u64, transient: TRANSIENT as u64, rows: None };
    let (most, stays) = peak(streaming);
    assert!(most <= form + TRANSIENT + MIB / 2, "{most} bytes at once");
    assert!(stays <= form + MIB / 4, "{stays} bytes stay");
    let (most, _) = peak(Streaming::off());
    assert!(most >= 2 * whole_intermediate, "what is counted are the intermediates: {most} bytes");
    // The usual bounds hold as well.
    let usual = Streaming::default();
    let (most, _) = peak(usual);
    assert!(most as u64 <= form as u64 + usual.transient, "{most} bytes at once");
    assert!(whole_intermediate as u64 * 2 > usual.transient, "the weight is large enough to tell");
}
