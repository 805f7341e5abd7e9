//! The text form of plans: canonical, every bad line reported with its place, no input makes parser or verifier panic.

use proptest::prelude::*;
use spinec_ir::plan::text::{parse, print};
use spinec_ir::plan::verify::verify;

/// A plan with loops, cases, a state and a derived weight.
const SMALL: &str = include_str!("cases/plan/small.plan");

#[test]
fn the_text_is_canonical_and_the_plan_valid() {
    let plan = parse(SMALL).unwrap_or_else(|e| panic!("{}", e[0]));
    assert_eq!(print(&plan), SMALL);
    let errors = verify(&plan);
    assert!(errors.is_empty(), "{}", errors[0]);
}

#[test]
fn comments_blank_lines_and_indentation_carry_no_meaning() {
    let loose: String = SMALL.lines().map(|l| format!("\n   {} ; and so on\n", l.trim())).collect();
    assert_eq!(print(&parse(&loose).unwrap_or_else(|e| panic!("{}", e[0]))), SMALL);
}

/// Values may have any numbers; references mean the numbers of the text.
#[test]
fn references_mean_the_numbers_of_the_text() {
    let mut renumbered = String::new();
    for (i, part) in SMALL.split('%').enumerate() {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[..digits].parse::<u32>() {
            Ok(n) if i > 0 => renumbered.push_str(&format!("%{}{}", 900 - n, &part[digits..])),
            _ => renumbered.push_str(part),
        }
    }
    assert_eq!(print(&parse(&renumbered).unwrap_or_else(|e| panic!("{}", e[0]))), SMALL);
}

/// The errors of the text with one line replaced, and the number of that line.
fn replaced(line: &str, by: &str) -> (u32, Vec<(u32, u32, String)>) {
    let at = SMALL.lines().position(|l| l.trim() == line).unwrap_or_else(|| panic!("there is no line `{line}`"));
    let lines: Vec<&str> = SMALL.lines().enumerate().map(|(i, l)| if i == at { by } else { l }).collect();
    let errors = parse(&lines.join("\n")).err().unwrap_or_default();
    (at as u32 + 1, errors.into_iter().map(|e| (e.line, e.col, e.message)).collect())
}

#[test]
fn every_bad_line_is_reported_where_it_is() {
    for (line, by, col, message) in [
        ("spinec-plan 1", "spinec-plan 2", 13, "format version 2 is not supported, 1 is"),
        ("spinec-plan 1", "spinec-ir 1", 1, "the first line must be `spinec-plan 1`"),
        ("reassociate true", "reassociate maybe", 13, "`true` or `false` is expected here, this is `maybe`"),
        (
            "reassociate true",
            "numerics f32",
            1,
            "`reassociate`, `rule`, `limit`, `derived` or `section` is expected here, this is `numerics`",
        ),
        ("rule \"norm-definition\" 1", "rule \"norm-definition\" -1", 24, "a number is expected here, this is `-`"),
        ("rule \"norm-definition\" 1", "rule \"linear-over-take\" 2", 1, "this rule stands twice"),
        ("section load", "section store", 9, "`module`, `load` or `phase` is expected here, this is `store`"),
        ("section load", "section module", 9, "this section stands twice"),
        ("yield %6, %7", "yield %6, %99", 11, "%99 is not defined in this function"),
        (
            "buffer 3 %9 : f32 bytes=2048*N",
            "  buffer 4 %9 : f32 bytes=2048*N",
            10,
            "this buffer has number 3: numbers follow the order of the lines",
        ),
        (
            "buffer 3 %9 : f32 bytes=2048*N",
            "  buffer 3 %77 : f32 bytes=2048*N",
            12,
            "%77 is not defined in the function",
        ),
        ("buffer 3 %9 : f32 bytes=2048*N", "  buffer 3 %9 : f31 bytes=2048*N", 17, "there is no dtype `f31`"),
        ("buffer 3 %9 : f32 bytes=2048*N", "  buffer 3 %9 : f32 bytes=", 27, "a dim is expected here, the line ends"),
        (
            "kernel 1 attention block=2 grid=N flops=2048*N*context",
            "  kernel 1 attend block=2 grid=N flops=2048*N*context",
            12,
            "there is no kernel family `attend`",
        ),
        ("mechanisms split_kv", "    mechanisms split_kw", 16, "there is no mechanism `split_kw`"),
        ("ops %9, %12", "    ops %9, %12 %13", 17, "the end of the line is expected here, this is `%13`"),
        ("ops %9, %12", "    ops %0", 9, "no op makes this value"),
        ("ops %9, %12", "    ops %7", 9, "an op is written by the first of its results"),
        ("ops %9, %12", "    ops op 0", 9, "op 0 has results and is written by the first of them"),
        ("ops %9, %12", "    ops op 4294967296", 12, "this number is too large"),
        (
            "read state 0 bytes=0",
            "    read heap 0 bytes=0",
            10,
            "`weight`, `buffer` or `state` is expected here, this is `heap`",
        ),
        ("write state 0 bytes=4096*N", "    ops %9", 5, "a second `ops` line of this kernel"),
        (
            "steps",
            "  step",
            3,
            "`buffer`, `kernel`, a part of a kernel, `steps`, `taken` or `refused` is expected here, this is `step`",
        ),
        ("launch 1", "  start 1", 3, "`launch`, `loop`, `cases`, `arm` or `end` is expected here, this is `start`"),
        ("loop %2", "    loop %0", 10, "no op makes this value"),
        ("arm", "launch 0", 1, "`arm` or `end` is expected here, this is `launch`"),
        ("launch 8", "arm", 1, "`arm` stands in `cases`"),
        (
            "section phase \"step\"",
            "section phase \"stop\"",
            15,
            "phase 0 is that of the function \"step\": phases follow the functions",
        ),
        ("launch 8", "launch 8 \u{e9}", 10, "`\\u{e9}` has no place in the text form"),
    ] {
        let (at, errors) = replaced(line, by);
        assert!(errors.contains(&(at, col, message.to_owned())), "{by}: {errors:?}");
    }
}

#[test]
fn decisions_are_read_one_a_line() {
    let with = |line: &str| parse(&format!("{SMALL}  {line}\n"));
    let known = with("refused %9 into %12 costlier \"never\"").unwrap_or_else(|e| panic!("{}", e[0]));
    assert!(known.phases[0].decisions.iter().any(|d| d.detail == "never"));
    for (line, col, message) in [
        ("taken %9 into %12 because", 21, "there is no reason `because`"),
        ("taken %9 in %12 same_rows", 12, "`into` is expected here, this is `in`"),
        ("refused %9 into %12 costlier never", 32, "the particulars in quotes is expected here, this is `never`"),
    ] {
        let errors = with(line).expect_err("the line is wrong");
        assert_eq!((errors.len(), errors[0].col, errors[0].message.as_str()), (1, col, message));
        assert_eq!(errors[0].line as usize, SMALL.lines().count() + 1);
    }
}

#[test]
fn all_bad_lines_are_reported_at_once() {
    let broken = SMALL.replace("mechanisms split_k\n", "mechanisms tricks\n").replace("launch 8", "launch it");
    let errors = parse(&broken).expect_err("the text is broken");
    assert_eq!(errors.len(), SMALL.matches("mechanisms split_k\n").count() + 1);
    assert!(errors.is_sorted());
}

#[test]
fn what_is_missing_is_said() {
    for (upto, message) in [
        ("\nsection module", "the text has no `section module`"),
        ("\nsection load", "the text has no `section load`"),
        ("\nsection phase", "0 phases for 1 functions"),
        ("  steps", "the phase has no steps"),
        ("    launch 8", "these steps have no `end`"),
    ] {
        let cut = SMALL.find(upto).unwrap_or_else(|| panic!("there is no `{upto}`"));
        let errors = parse(&SMALL[..cut]).expect_err("the text is cut");
        assert!(errors.iter().any(|e| e.message == message), "{upto}: {errors:?}");
    }
    assert!(parse("").is_err());
    let deep = format!("{}\n  steps\n{}", &SMALL[..SMALL.find("  steps").unwrap_or(0)], "loop %2\n".repeat(100_000));
    assert!(parse(&deep).expect_err("it is too deep").iter().any(|e| e.message.contains("nest deeper")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes replaced, lines dropped, doubled and exchanged: an error or a plan, and the verifier stands whatever plan it is.
    #[test]
    fn broken_text_never_panics(
        edits in prop::collection::vec((0usize..4, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let mut lines: Vec<String> = SMALL.lines().map(str::to_owned).collect();
        for (kind, a, b) in edits {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            match kind {
                0 => drop(lines.remove(a)),
                1 => lines.insert(a, lines[b].clone()),
                2 => lines.swap(a, b),
                // A number becomes another one.
                _ => {
                    let digit = lines[a].find(|c: char| c.is_ascii_digit());
                    if let Some(i) = digit {
                        lines[a].replace_range(i..=i, &(b % 10).to_string());
                    }
                }
            }
        }
        let text = lines.join("\n");
        if let Ok(plan) = parse(&text) {
            let errors = verify(&plan);
            let again = parse(&print(&plan));
            if errors.is_empty() {
                prop_assert_eq!(again, Ok(plan));
            }
        }
    }
}
