//! A drafter that proposes a token at a time: a loop over a whole decoder, which advances states of every kind.

mod support;

use spinec_exec::synth::write_checkpoints;
use spinec_ir::spec::system::System;
use spinec_ir::ty::Numerics;
use support::runs::*;
use support::*;

const SPEC: &str = "tests/filetests/autoregressive/system.yaml";

/// The system with random weights; with `same` the drafter has the target's.
fn loaded(dir: &tempfile::TempDir, same: bool) -> System {
    let config = "tests/filetests/autoregressive/config".to_string();
    let blank = system(SPEC, Numerics::F32, &[("target", config.clone()), ("drafter", config)]);
    write_checkpoints(&blank, dir.path(), 3).expect("checkpoints are written");
    let at = |name: &str| dir.path().join(name).display().to_string();
    system(SPEC, Numerics::F32, &[("target", at("target")), ("drafter", at(if same { "target" } else { "drafter" }))])
}

/// What a draft pass does to the drafter's states is undone before the accepted tokens go through them, so the target's own
/// weights propose what the target says.
#[test]
fn the_target_as_its_drafter_is_always_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let system = loaded(&dir, true);
    on_each(|| {
        let want = solo(&system, &greedy(&[1, 2, 3, 9, 30], 41), plain()).tokens;
        let got = solo(&system, &greedy(&[1, 2, 3, 9, 30], 41), speculative());
        assert_eq!(got.tokens, want);
        let accepted: Vec<usize> = got.cycles.iter().map(|c| c.accepted).collect();
        assert_eq!(accepted, [4; 8]);
    });
}

#[test]
fn another_drafter_changes_no_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let system = loaded(&dir, false);
    on_each(|| {
        let requests: Vec<_> = (0..3).map(|i| greedy(&[i + 1, 7 * i, 40 - i], 24)).collect();
        let want = run_all(&system, &requests, plain());
        let got = run_all(&system, &requests, speculative());
        let mut accepted = 0;
        for (a, b) in got.done.iter().zip(&want.done) {
            assert_eq!(a.tokens, b.tokens);
            accepted += a.cycles.iter().map(|c| c.accepted).sum::<usize>();
        }
        assert!(accepted < 3 * 23, "the drafter differs");
    });
}
