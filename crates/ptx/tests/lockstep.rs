//! Lanes of one warp are threads of their own: what one writes, another may read only after an operation that orders
//! them. Of PTX's operations between lanes only barriers do; shuffles, votes and their like order no memory.

mod warps;

use spinec_ptx::{Finding, FindingKind};
use warps::{clean, run};

const CELLS: &str = ".shared .align 16 .b8 cells[512]; .shared .align 8 .b8 bar[8];";

/// Registers: %r2 the lane's own word, %r5 its neighbour's, %r3 a value.
fn body(text: &str) -> String {
    format!(
        "mov.u32 %r1, cells; mad.lo.u32 %r2, %r0, 4, %r1; add.u32 %r3, %r0, 7; xor.b32 %r4, %r0, 1; mad.lo.u32 %r5, %r4, 4, %r1;\n{text}"
    )
}

fn findings(text: &str, warps: usize) -> Vec<Finding> {
    run(CELLS, &body(text), warps, &vec![vec![0]; 32 * warps], 1).1.errors().cloned().collect()
}

/// The only finding is a race of these two lines of the body, in this order of time.
fn race(text: &str, first: u32, second: u32) {
    let found = findings(text, 1);
    let lines: Vec<_> = found.iter().map(|f| (f.kind, f.other_ptx_line, f.ptx_line)).collect();
    // The body starts at line 10 of the file.
    let want = (FindingKind::SharedRace, Some(first + 10), second + 10);
    assert_eq!(lines, [want], "{text}: {found:?}");
    assert!(found[0].message.contains("of the same warp"), "{}", found[0]);
}

#[test]
fn a_warp_barrier_orders_its_lanes() {
    // Each lane reads what its neighbour wrote; then halves of the warp wait for each other alone.
    let text = "st.shared.b32 [%r2], %r3; bar.warp.sync -1; ld.shared.b32 %r6, [%r5]; bar.warp.sync 0xffffffff; setp.ge.u32 %p1, %r0, 16;
        @%p1 bra HIGH; st.shared.b32 [%r2], %r0; bar.warp.sync 0xffff; ld.shared.b32 %r7, [%r5]; bra JOIN;
        HIGH: st.shared.b32 [%r2], %r0; bar.warp.sync 0xffff0000; ld.shared.b32 %r7, [%r5];
        JOIN: mov.b64 %d3, {%r6, %r7}; st.global.b64 [%d2], %d3;";
    let (out, r) = run(CELLS, &body(text), 1, &vec![vec![0]; 32], 1);
    clean(&r);
    assert!(out.iter().enumerate().all(|(l, o)| o[0] == (l as u64 ^ 1) << 32 | ((l as u64 ^ 1) + 7)), "{out:?}");
}

#[test]
fn a_missing_warp_barrier_is_a_race() {
    race("st.shared.b32 [%r2], %r3;\nld.shared.b32 %r6, [%r5];", 0, 1);
    race("st.shared.b32 [%r2], %r3;\nst.shared.b32 [%r5], %r3;", 0, 1);
    race("st.shared.b32 [%r2], %r3; bar.warp.sync -1;\nld.shared.b32 %r6, [%r5];\nst.shared.b32 [%r2], %r6;", 1, 2);
    // Own words need no barrier, and a barrier of the block orders as well.
    assert_eq!(findings("st.shared.b32 [%r2], %r3; ld.shared.b32 %r6, [%r2]; st.shared.b32 [%r2], %r6;", 1), []);
    assert_eq!(findings("st.shared.b32 [%r2], %r3; bar.sync 0; ld.shared.b32 %r6, [%r5];", 1), []);
    // In global memory: the neighbour's slot of the output.
    let text = "mov.u64 %d5, 1; st.global.b64 [%d2], %d5; and.b32 %r6, %r0, 1; shl.b32 %r6, %r6, 4; cvt.u64.u32 %d6, %r6; add.u64 %d7, %d2, 8; sub.u64 %d7, %d7, %d6;
        ld.global.b64 %d8, [%d7];";
    let found = findings(text, 1);
    assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), [FindingKind::GlobalRace], "{found:?}");
}

#[test]
fn shuffles_and_votes_order_no_memory() {
    for op in [
        "shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1;",
        "vote.sync.any.pred %p1, %p2, -1;",
        "match.any.sync.b32 %r9, %r3, -1;",
        "redux.sync.add.u32 %r9, %r3, -1;",
        "elect.sync %r9|%p1, -1;",
        "membar.cta;",
    ] {
        race(&format!("st.shared.b32 [%r2], %r3; {op}\nld.shared.b32 %r6, [%r5];"), 0, 1);
    }
}

#[test]
fn a_barrier_of_some_lanes_orders_those() {
    let half = |mask: &str| {
        format!(
            "st.shared.b32 [%r2], %r3; setp.ge.u32 %p1, %r0, 16; @%p1 bra END; bar.warp.sync 0xffff;
             add.u32 %r6, %r2, {mask}; setp.eq.u32 %p2, %r0, 15; @%p2 bra END;\nld.shared.b32 %r7, [%r6]; END:"
        )
    };
    assert_eq!(findings(&half("4"), 1), []);
    // The word of a lane of the other half.
    let found = findings(&half("64"), 1);
    assert_eq!((found.len(), found[0].kind), (1, FindingKind::SharedRace), "{found:?}");
}

#[test]
fn parts_of_a_word_belong_to_their_lanes() {
    // Halves of a word, updated in place by adjacent lanes; then bytes.
    let text = "mad.lo.u32 %r6, %r0, 2, %r1; cvt.u16.u32 %h1, %r3; st.shared.u16 [%r6], %h1; ld.shared.u16 %h2, [%r6]; add.u16 %h2, %h2, 1; st.shared.u16 [%r6], %h2;
        bar.warp.sync -1; add.u32 %r6, %r0, %r1; st.shared.u8 [%r6], %r3; ld.shared.u8 %r7, [%r6]; st.shared.u8 [%r6], %r7;";
    assert_eq!(findings(text, 1), []);
    race(
        "mad.lo.u32 %r6, %r0, 2, %r1; cvt.u16.u32 %h1, %r3; st.shared.u16 [%r6], %h1; and.b32 %r8, %r6, -4;\nld.shared.b32 %r7, [%r8];",
        0,
        1,
    );
}

#[test]
fn one_value_written_by_many_is_nobodys_race() {
    assert_eq!(findings("st.shared.b32 [%r1], 5; ld.shared.b32 %r6, [%r1];", 1), []);
    race("setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.b32 [%r1], 5;\nld.shared.b32 %r6, [%r1];", 0, 1);
}

#[test]
fn a_lock_between_lanes_orders_what_it_guards() {
    let lock = |fence: &str| {
        format!(
            "setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.b64 [%r1], 0; bar.warp.sync -1;
             AGAIN: atom.shared.cas.b32 %r6, [%r1], 0, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra AGAIN;
             {fence} ld.shared.b32 %r7, [%r1+4]; add.u32 %r7, %r7, 1; st.shared.b32 [%r1+4], %r7; {fence}
             atom.shared.exch.b32 %r8, [%r1], 0;"
        )
    };
    assert_eq!(findings(&lock("membar.cta;"), 1), []);
    assert!(findings(&lock(""), 1).iter().any(|f| f.kind == FindingKind::SharedRace));
    let ordered = lock("")
        .replace("atom.shared.cas", "atom.acquire.cta.shared.cas")
        .replace("atom.shared.exch", "atom.release.cta.shared.exch");
    assert_eq!(findings(&ordered, 1), []);
}

/// Warp 0 writes its words and one of its lanes arrives at an mbarrier that warp 1 waits for.
fn handover(before: &str) -> Vec<Finding> {
    findings(
        &format!(
            "mov.u32 %r10, bar; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared.b64 [%r10], 1; bar.sync 0;
             setp.ge.u32 %p2, %r0, 32; @%p2 bra READ; st.shared.b32 [%r2], %r3; {before} @!%p1 mbarrier.arrive.shared.b64 _, [%r10]; exit;
             READ: TRY: mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0; @!%p3 bra TRY; sub.u32 %r6, %r2, 128; ld.shared.b32 %r7, [%r6];"
        ),
        2,
    )
}

#[test]
fn an_elected_lane_releases_what_it_knows() {
    assert_eq!(handover("bar.warp.sync -1;"), []);
    let found = handover("");
    assert_eq!((found.len(), found[0].kind), (1, FindingKind::SharedRace), "{found:?}");
    // Of all words, only lane 0's own is safe.
    assert_eq!((found[0].lane, found[0].count), (1, 31), "{}", found[0]);
}

#[test]
fn an_mbarrier_is_initialised_before_other_lanes_use_it() {
    let text = |sync: &str| {
        format!(
            "mov.u32 %r10, bar; setp.ne.u32 %p1, %r0, 0; @!%p1 mbarrier.init.shared.b64 [%r10], 32; {sync}\nmbarrier.arrive.shared.b64 %d5, [%r10];"
        )
    };
    assert_eq!(findings(&text("bar.warp.sync -1;"), 1), []);
    assert_eq!(findings(&text(""), 1)[0].kind, FindingKind::SharedRace);
}

#[test]
fn every_reader_counts() {
    // Warps 0 to 4 read a word; warp 5 writes it after the barriers of some of them.
    let text = |joined: &[u32]| {
        let joins: String = joined
            .iter()
            .map(|w| format!("setp.eq.u32 %p2, %r10, {w}; @%p2 bar.arrive {}, 64; setp.eq.u32 %p3, %r10, 5; @%p3 bar.sync {}, 64;\n", w + 1, w + 1))
            .collect();
        format!(
            "st.shared.b32 [%r2], %r3; bar.sync 0; shr.u32 %r10, %r0, 5; setp.ne.u32 %p1, %r10, 5; @%p1 ld.shared.b32 %r6, [%r1];
             {joins} @!%p1 st.shared.b32 [%r1], %r3;"
        )
    };
    let cells = ".shared .align 16 .b8 cells[768]; .shared .align 8 .b8 bar[8];";
    let kinds = |joined: &[u32]| -> Vec<FindingKind> {
        let report = run(cells, &body(&text(joined)), 6, &vec![vec![0]; 192], 1).1;
        // Lanes of the last warp write different values, which is not the point here.
        report.errors().map(|f| f.kind).filter(|k| *k != FindingKind::LaneConflict).collect()
    };
    assert_eq!(kinds(&[0, 1, 2, 3, 4]), []);
    for missing in 0..5 {
        let joined: Vec<u32> = (0..5).filter(|w| *w != missing).collect();
        assert_eq!(kinds(&joined), [FindingKind::SharedRace], "without warp {missing}");
    }
}
