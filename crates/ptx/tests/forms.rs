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
            || matches!(name, "setp" | "set" | "testp" | "selp" | "bfi" | "lop3") || f.text.ends_with(".pred")
    };
    run_all(lane_forms().filter(|f| !elsewhere(f)), 768, 300);
}

#[test]
fn every_conversion() {
    run_all(lane_forms().filter(|f| f.text.starts_with("cvt.") && !f.text.contains("pack")), 256, 600);
}
