//! Every opcode form that the lowering accepts has a test against an independent statement of it.
//!
//! Functions of one lane are all run here against `reference`. What works on memory, warps or blocks is listed in `TESTS`
//! with the test that covers it; a form that is in neither fails.

#![allow(clippy::precedence)]

mod reference;
mod single;

use reference::{Want, expect};
use single::apply;
use spinec_ptx::{OpcodeForm, opcode_forms};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Random bits, few and many of them, edges of integers, or floats whose exponents meet.
    fn operand(&mut self, class: char, float: Option<(u32, u32)>) -> u64 {
        let r = self.next();
        let width = match class {
            'h' => 16,
            'd' => 64,
            'p' => 1,
            _ => 32,
        };
        let v = match r % 4 {
            0 => self.next(),
            1 => {
                let edges =
                    [0, 1, 2, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff];
                let e = edges[(r >> 8) as usize % edges.len()];
                if r >> 40 & 1 == 1 { (1u64 << (width - 1)).wrapping_sub(e) } else { e }
            }
            2 if float.is_none() => self.next() >> (r >> 8 & 63),
            _ => match float {
                Some((exponent, fraction)) => {
                    let top = (1u64 << exponent) - 1;
                    let e = match r >> 8 & 7 {
                        0 => 0,
                        1 => top - (r >> 16) % 2,
                        2 => 1 + (r >> 16) % 3,
                        _ => (top / 2).wrapping_add(r >> 16 & 63).wrapping_sub(32) & top,
                    };
                    let f = match r >> 24 & 3 {
                        0 => 0,
                        1 => (1 << fraction) - 1,
                        2 => self.next() & 7,
                        _ => self.next(),
                    } & ((1 << fraction) - 1);
                    (r >> 63) << (exponent + fraction) | e << fraction | f
                }
                None => self.next(),
            },
        };
        if width == 64 { v } else { v & ((1 << width) - 1) }
    }
}

/// Exponent and fraction bits of the type that an operand is read as.
fn float_of(text: &str) -> Option<(u32, u32)> {
    match text.rsplit('.').next().unwrap_or("") {
        "f16" => Some((5, 10)),
        "bf16" => Some((8, 7)),
        "f32" => Some((8, 23)),
        "f64" => Some((11, 52)),
        _ => None,
    }
}

fn rows(form: &OpcodeForm, count: usize) -> Vec<Vec<u64>> {
    let mut r =
        Rng(form.text.bytes().fold(0x9e37_79b9_7f4a_7c15, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)));
    let float = float_of(&form.text);
    (0..count).map(|_| form.operands.chars().skip(1).map(|c| r.operand(c, float)).collect()).collect()
}

/// Runs a form on random rows and compares each result with its statement; the first difference is an error.
fn run(form: &OpcodeForm, count: usize, want: impl Fn(&[u64]) -> Want) -> Result<(), String> {
    let classes: Vec<char> = form.operands.chars().collect();
    let rows = rows(form, count);
    let operands: Vec<String> = (0..classes.len() - 1).map(|k| format!("${k}")).collect();
    let text = format!("{} $d, {};", form.text, operands.join(", "));
    let got = apply(&text, classes[0], &classes[1..], &rows);
    for (row, g) in rows.iter().zip(got) {
        let w = want(row);
        if !w.holds(g) {
            return Err(format!("\n{text} of {row:x?}: got {g:#x}, expected {w:x?}"));
        }
    }
    Ok(())
}

/// Runs all forms and lists every one that differs.
fn run_all(forms: impl Iterator<Item = OpcodeForm>, count: usize, least: usize) {
    let results: Vec<_> = forms.map(|f| run(&f, count, |row| expect(&f.text, row))).collect();
    let wrong: Vec<String> = results.iter().filter_map(|r| r.clone().err()).collect();
    assert!(wrong.is_empty(), "{} of {} forms:{}", wrong.len(), results.len(), wrong.concat());
    assert!(results.len() >= least, "{}", results.len());
}

fn lane_forms() -> impl Iterator<Item = OpcodeForm> {
    opcode_forms().into_iter().filter(|f| !f.operands.is_empty())
}

#[test]
fn every_lane_function() {
    let elsewhere = |f: &OpcodeForm| {
        let name = f.text.split('.').next().unwrap_or("");
        (name == "cvt" && !f.text.contains("pack"))
            || matches!(name, "setp" | "set" | "testp" | "selp" | "bfi" | "lop3")
            || f.text.ends_with(".pred")
    };
    run_all(lane_forms().filter(|f| !elsewhere(f)), 768, 300);
}

#[test]
fn every_conversion() {
    run_all(lane_forms().filter(|f| f.text.starts_with("cvt.") && !f.text.contains("pack")), 256, 600);
}

/// Rows of a form in which half of the second operands equal the first.
fn pairs(form: &OpcodeForm, count: usize) -> Vec<Vec<u64>> {
    let mut rows = rows(form, count);
    rows.iter_mut().step_by(2).for_each(|r| r[1] = r[0]);
    rows
}

/// Whether a comparison holds: integers by value, floats by their order, in which NaN stands beside all others.
fn holds(cmp: &str, ty: &str, a: u64, b: u64, flush: bool) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let single = |v: u64| {
        let x = f32::from_bits(v as u32);
        if flush && x.is_subnormal() { 0.0 } else { x }
    };
    let order = match ty {
        "f64" => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        "f32" => single(a).partial_cmp(&single(b)),
        "f16" => half::f16::from_bits(a as u16).partial_cmp(&half::f16::from_bits(b as u16)),
        "bf16" => half::bf16::from_bits(a as u16).partial_cmp(&half::bf16::from_bits(b as u16)),
        _ => {
            let (bits, signed) = reference::integer(ty).expect("an integer type");
            Some(reference::value(a, bits, signed).cmp(&reference::value(b, bits, signed)))
        }
    };
    let unordered = matches!(cmp, "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "nan");
    match (order, cmp.strip_suffix('u').filter(|_| cmp.len() == 3).unwrap_or(cmp)) {
        (None, _) => unordered,
        (Some(_), "num") => true,
        (Some(_), "nan") => false,
        (Some(o), "eq") => o == Equal,
        (Some(o), "ne") => o != Equal,
        (Some(o), "lt" | "lo") => o == Less,
        (Some(o), "le" | "ls") => o != Greater,
        (Some(o), "gt" | "hi") => o == Greater,
        (Some(o), _) => o != Less,
    }
}

#[test]
fn every_comparison() {
    let mut count = 0;
    for form in lane_forms().filter(|f| f.text.starts_with("setp.") || f.text.starts_with("set.")) {
        let parts: Vec<&str> = form.text.split('.').collect();
        let (cmp, ty) = (parts[1], parts[parts.len() - 1]);
        let classes: Vec<char> = form.operands.chars().collect();
        let rows = pairs(&form, 64);
        let truth = if parts.len() == 4 && parts[2] == "f32" {
            u64::from(1f32.to_bits())
        } else if parts[0] == "set" {
            0xffff_ffff
        } else {
            1
        };
        for flush in [false, true] {
            if flush && ty != "f32" {
                continue;
            }
            let text = if flush {
                form.text.replace(&format!("{}.{cmp}", parts[0]), &format!("{}.{cmp}.ftz", parts[0]))
            } else {
                form.text.clone()
            };
            let got = apply(&format!("{text} $d, $0, $1;"), classes[0], &classes[1..], &rows);
            for (row, g) in rows.iter().zip(got) {
                let want = if holds(cmp, ty, row[0], row[1], flush) { truth } else { 0 };
                assert_eq!(g, want, "{text} of {row:x?}");
            }
        }
        count += 1;
    }
    assert!(count > 300, "{count}");
}

#[test]
fn comparisons_combine_with_a_predicate_and_give_the_complement() {
    for (op, f) in [("and", (|a, b| a & b) as fn(bool, bool) -> bool), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)] {
        for negate in ["", "!"] {
            let rows: Vec<Vec<u64>> = (0..8).map(|k| vec![k & 1, k >> 1 & 1, k >> 2]).collect();
            let c = |row: &[u64]| (row[2] != 0) != (negate == "!");
            // Both results, one in each of two runs: the second is the complement of the comparison, then combined.
            let first = apply(&format!("setp.lt.{op}.u32 $d|%p9, $0, $1, {negate}$2;"), 'p', &['r', 'r', 'p'], &rows);
            let second = apply(&format!("setp.lt.{op}.u32 %p9|$d, $0, $1, {negate}$2;"), 'p', &['r', 'r', 'p'], &rows);
            let set = apply(&format!("set.lt.{op}.u32.u32 $d, $0, $1, {negate}$2;"), 'r', &['r', 'r', 'p'], &rows);
            for (k, row) in rows.iter().enumerate() {
                let less = row[0] < row[1];
                assert_eq!(first[k] == 1, f(less, c(row)), "{op} {negate} {row:?}");
                assert_eq!(second[k] == 1, f(!less, c(row)), "{op} {negate} {row:?}");
                assert_eq!(set[k] == 0xffff_ffff, f(less, c(row)), "{op} {negate} {row:?}");
            }
        }
    }
}

#[test]
fn every_property() {
    use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
    for form in lane_forms().filter(|f| f.text.starts_with("testp.")) {
        let classes: Vec<char> = form.operands.chars().collect();
        let rows = rows(&form, 256);
        let got = apply(&format!("{} $d, $0;", form.text), classes[0], &classes[1..], &rows);
        for (row, g) in rows.iter().zip(got) {
            let category = match classes[1] {
                'd' => f64::from_bits(row[0]).classify(),
                _ => f32::from_bits(row[0] as u32).classify(),
            };
            let want = match form.text.split('.').nth(1).unwrap_or("") {
                "finite" => matches!(category, Normal | Subnormal | Zero),
                "infinite" => category == Infinite,
                "number" => category != Nan,
                "notanumber" => category == Nan,
                "normal" => category == Normal,
                _ => category == Subnormal,
            };
            assert_eq!(g == 1, want, "{} of {row:x?}", form.text);
        }
    }
}

#[test]
fn every_selection() {
    for form in lane_forms().filter(|f| f.text.starts_with("selp.")) {
        let classes: Vec<char> = form.operands.chars().collect();
        let rows = rows(&form, 64);
        for negate in ["", "!"] {
            let got = apply(&format!("{} $d, $0, $1, {negate}$2;", form.text), classes[0], &classes[1..], &rows);
            for (row, g) in rows.iter().zip(got) {
                assert_eq!(g, if (row[2] != 0) != (negate == "!") { row[0] } else { row[1] }, "{} {negate}", form.text);
            }
        }
    }
}

#[test]
fn logic_of_predicates() {
    let rows: Vec<Vec<u64>> = (0..4).map(|k| vec![k & 1, k >> 1]).collect();
    let f = |op: &str, a: u64, b: u64| match op {
        "and" => a & b,
        "or" => a | b,
        "xor" => a ^ b,
        "not" => 1 - a,
        _ => a,
    };
    for op in ["and", "or", "xor", "not", "mov"] {
        let two = matches!(op, "and" | "or" | "xor");
        for (na, nb) in [("", ""), ("!", ""), ("", "!"), ("!", "!")] {
            if (!two && nb == "!") || (op == "mov" && na == "!") {
                continue;
            }
            let text = format!("{op}.pred $d, {na}$0{};", if two { format!(", {nb}$1") } else { String::new() });
            let got = apply(&text, 'p', &['p', 'p'], &rows);
            for (row, g) in rows.iter().zip(got) {
                let flip = |v: u64, n: &str| if n == "!" { 1 - v } else { v };
                assert_eq!(g, f(op, flip(row[0], na), flip(row[1], nb)), "{text} of {row:?}");
            }
        }
    }
}

/// The carry is set by an addition of all ones to the last operand, and read back by an addition to zero.
#[test]
fn every_carry() {
    let mut r = Rng(7);
    let names = ["add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc", "mad.lo.cc", "madc.lo", "madc.lo.cc"];
    let high = ["mad.hi.cc", "madc.hi", "madc.hi.cc"];
    let known: Vec<String> = opcode_forms().into_iter().map(|f| f.text).collect();
    for ty in ["u32", "s32", "u64", "s64"] {
        for name in names.iter().chain(high.iter().filter(|_| ty.starts_with('u'))) {
            assert!(known.contains(&format!("{name}.{ty}")), "{name}.{ty}");
            let bits: u32 = ty[1..].parse().expect("a width");
            let class = if bits == 64 { 'd' } else { 'r' };
            let rows: Vec<Vec<u64>> = (0..256)
                .map(|k| {
                    let mut row: Vec<u64> = (0..3).map(|_| r.operand(class, None)).collect();
                    row.push(k % 2);
                    row
                })
                .collect();
            let reads = ["addc", "subc", "madc"].iter().any(|p| name.starts_with(p));
            let writes = name.ends_with("cc");
            let multiply = name.starts_with("mad");
            let operands = if multiply { "$0, $1, $2" } else { "$0, $1" };
            let (scratch, out) = if bits == 64 { ("%d30", "%d31") } else { ("%r30", "%r29") };
            let set = format!("add.cc.u{bits} {scratch}, $3, -1;\n");
            let result = apply(&format!("{set}{name}.{ty} $d, {operands};"), class, &[class; 4], &rows);
            let carries = apply(
                &format!("{set}{name}.{ty} {out}, {operands};\naddc.u{bits} $d, 0, 0;"),
                class,
                &[class; 4],
                &rows,
            );
            for ((row, v), carry) in rows.iter().zip(result).zip(carries) {
                let mask = (1u128 << bits) - 1;
                let w = |k: usize| u128::from(row[k]) & mask;
                let c = if reads { w(3) } else { 0 };
                let (sum, out) = if name.starts_with("sub") {
                    let borrow = w(0) < w(1) + c;
                    (w(0).wrapping_sub(w(1)).wrapping_sub(c), u64::from(borrow))
                } else {
                    let product = w(0) * w(1);
                    let base = match (multiply, name.contains("hi")) {
                        (false, _) => w(0) + w(1),
                        (_, false) => (product & mask) + w(2),
                        _ => (product >> bits) + w(2),
                    };
                    (base + c, ((base + c) >> bits) as u64)
                };
                assert_eq!(u128::from(v), sum & mask, "{name}.{ty} of {row:x?}");
                // Without `.cc` the carry stays as it was.
                assert_eq!(carry, if writes { out } else { w(3) as u64 }, "carry of {name}.{ty} of {row:x?}");
            }
        }
    }
}

/// Forms (a `*` at the end stands for anything) and the test that states what they do, as `file::function`.
const TESTS: &[(&str, &str)] = &[
    ("bfi.*", "arithmetic::bit_operations"),
    ("lop3.*", "arithmetic::bit_operations"),
    ("add.cc.*", "forms::every_carry"),
    ("addc.*", "forms::every_carry"),
    ("sub.cc.*", "forms::every_carry"),
    ("subc.*", "forms::every_carry"),
    ("mad.lo.cc.*", "forms::every_carry"),
    ("mad.hi.cc.*", "forms::every_carry"),
    ("madc.*", "forms::every_carry"),
    ("atom.cas.*", "memory_ops::compare_and_swap_of_every_width"),
    ("atom.*", "memory_ops::atomics_of_every_type_in_global_and_shared_memory"),
    ("red.async.*", "sync_ops::asynchronous_reductions_reach_another_block"),
    ("red.*", "memory_ops::atomics_of_every_type_in_global_and_shared_memory"),
    ("cp.reduce.async.bulk.tensor.*", "memory_ops::tensor_reductions_of_every_type"),
    ("cp.reduce.async.bulk.*", "memory_ops::bulk_reductions_of_every_type"),
    ("mov.b128", "memory_ops::vectors_and_128_bits_keep_their_order"),
    ("ld.b128", "memory_ops::vectors_and_128_bits_keep_their_order"),
    ("st.b128", "memory_ops::vectors_and_128_bits_keep_their_order"),
    ("ldu", "memory_ops::vectors_and_128_bits_keep_their_order"),
    ("ld", "memory_ops::accesses_of_every_width_extend_as_their_type_says"),
    ("st", "memory_ops::accesses_of_every_width_extend_as_their_type_says"),
    ("st.async", "sync_ops::asynchronous_stores_reach_another_block"),
    ("bra*", "sync_ops::control_flow"),
    ("brx.idx", "sync_ops::control_flow"),
    ("exit", "sync_ops::control_flow"),
    ("trap", "sync_ops::control_flow"),
    ("brkpt", "sync_ops::control_flow"),
    ("nanosleep", "sync_ops::control_flow"),
    ("griddepcontrol", "sync_ops::control_flow"),
    ("setmaxnreg", "sync_ops::control_flow"),
    ("pmevent", "sync_ops::control_flow"),
    ("ret", "sync_ops::functions_are_called_with_their_arguments"),
    ("call", "sync_ops::functions_are_called_with_their_arguments"),
    ("bar.sync", "sync_ops::mbarrier_phases_by_arrivals"),
    ("bar.arrive", "sync_ops::named_barriers_join_producers_and_consumers"),
    ("barrier.arrive", "sync_ops::named_barriers_join_producers_and_consumers"),
    ("barrier.sync", "sync_ops::named_barriers_join_producers_and_consumers"),
    ("bar.red.*", "sync_ops::barrier_reductions_over_the_block"),
    ("barrier.red.*", "sync_ops::barrier_reductions_over_the_block"),
    ("bar.warp.sync", "lockstep::a_warp_barrier_orders_its_lanes"),
    ("barrier.cluster.*", "sync_ops::addresses_of_other_blocks_carry_their_rank"),
    ("fence", "sync_ops::fences_and_orders_publish"),
    ("membar", "sync_ops::fences_and_orders_publish"),
    ("fence.mbarrier_init", "sync_ops::bulk_copies_between_blocks_and_to_many"),
    ("fence.proxy.async", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("fence.proxy.alias", "sync_ops::fences_that_order_nothing_here"),
    ("fence.proxy.tensormap::generic", "sync_ops::fences_that_order_nothing_here"),
    ("createpolicy", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("cp.async.bulk.prefetch", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("cp.async.bulk.global.shared::cta", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("cp.async.bulk.commit_group", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("cp.async.bulk.wait_group", "sync_ops::bulk_stores_take_what_shared_memory_holds"),
    ("cp.async.bulk.prefetch.tensor", "sync_ops::fences_that_order_nothing_here"),
    ("cp.async.bulk.shared::cluster.shared::cta", "sync_ops::bulk_copies_between_blocks_and_to_many"),
    ("cp.async.bulk.shared::cluster.global", "launch::bulk_copies_and_reductions"),
    ("cp.async.bulk.tensor.shared::cluster.global", "launch::tma_load"),
    ("cp.async.bulk.tensor.global.shared::cta", "memory_ops::tensor_stores_clip_at_the_edges"),
    ("cp.async", "sync_ops::lane_copies_of_every_size_fill_with_zeros"),
    ("cp.async.wait_all", "sync_ops::lane_copies_of_every_size_fill_with_zeros"),
    ("cp.async.commit_group", "sync_ops::groups_of_copies_land_in_order"),
    ("cp.async.wait_group", "sync_ops::groups_of_copies_land_in_order"),
    ("cp.async.mbarrier.arrive", "sync_ops::copies_arrive_at_mbarriers"),
    ("mbarrier.init", "sync_ops::with_mbarrier"),
    ("mbarrier.inval", "sync_ops::mbarrier_counts_and_drops"),
    ("mbarrier.arrive*", "sync_ops::mbarrier_counts_and_drops"),
    ("mbarrier.expect_tx", "sync_ops::mbarrier_counts_and_drops"),
    ("mbarrier.complete_tx", "sync_ops::mbarrier_counts_and_drops"),
    ("mbarrier.test_wait", "sync_ops::mbarrier_phases_by_arrivals"),
    ("mbarrier.try_wait", "sync_ops::mbarrier_phases_by_arrivals"),
    ("mbarrier.pending_count", "sync_ops::mbarrier_phases_by_arrivals"),
    ("cvta*", "sync_ops::addresses_know_their_space"),
    ("isspacep", "sync_ops::addresses_know_their_space"),
    ("prefetch", "sync_ops::addresses_know_their_space"),
    ("prefetchu", "sync_ops::addresses_know_their_space"),
    ("applypriority", "sync_ops::addresses_know_their_space"),
    ("discard", "sync_ops::addresses_know_their_space"),
    ("mapa", "sync_ops::addresses_of_other_blocks_carry_their_rank"),
    ("getctarank", "sync_ops::addresses_of_other_blocks_carry_their_rank"),
    ("shfl.sync.*", "warp::shuffles"),
    ("vote.sync.uni", "sync_ops::every_warp_vote_match_and_reduction"),
    ("vote.sync.*", "warp::votes_and_reductions"),
    ("match.*", "sync_ops::every_warp_vote_match_and_reduction"),
    ("redux.sync.*", "sync_ops::every_warp_vote_match_and_reduction"),
    ("activemask", "warp::votes_and_reductions"),
    ("elect.sync", "warp::votes_and_reductions"),
    ("ldmatrix", "matrices::matrix_loads_and_stores"),
    ("stmatrix", "matrices::matrix_loads_and_stores"),
    ("movmatrix", "matrices::matrix_loads_and_stores"),
    ("mma.sync", "matrices::mma"),
    ("wmma.*", "matrices::wmma"),
    ("wgmma.*", "matrices::wgmma"),
];

/// The text of a function of a test file.
fn function(file: &str, name: &str) -> String {
    let path = format!("{}/tests/{file}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let start = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{path} has no function {name}"));
    let end = text[start..].find("\n}\n").map_or(text.len(), |n| start + n);
    text[start..end].into()
}

#[test]
fn every_form_names_its_test() {
    let fits = |pattern: &str, form: &str| match pattern.strip_suffix('*') {
        Some(prefix) => form.starts_with(prefix),
        None => form == pattern,
    };
    let run_here = |f: &OpcodeForm| {
        let name = f.text.split('.').next().unwrap_or("");
        !f.operands.is_empty() && !matches!(name, "bfi" | "lop3")
    };
    let mut used = vec![false; TESTS.len()];
    let mut missing = Vec::new();
    for form in opcode_forms().iter().filter(|f| !run_here(f)) {
        match TESTS.iter().position(|t| fits(t.0, &form.text)) {
            Some(k) => used[k] = true,
            None => missing.push(form.text.clone()),
        }
    }
    assert!(missing.is_empty(), "forms without a test: {missing:?}");
    for ((pattern, test), used) in TESTS.iter().zip(used) {
        assert!(used, "no form is `{pattern}`");
        let (file, name) = test.split_once("::").expect("file and function");
        // The test must at least write the instruction.
        let mnemonic = pattern.trim_end_matches('*').split('.').next().unwrap_or("");
        assert!(function(file, name).contains(mnemonic), "{test} does not use `{mnemonic}`");
    }
}
