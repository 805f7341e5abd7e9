//! Device records: what is read, and that nothing wrong is.

use spinec_ir::diag::render;
use spinec_ir::spec::device::Device;

const GOOD: &str = include_str!("../../../devices/h200.yaml");

/// Codes and lines of what is reported.
fn errors(text: &str) -> Vec<(String, u32)> {
    let Err((sources, diags)) = Device::from_yaml("d.yaml", text) else { panic!("accepted: {text}") };
    let sorted = diags.into_sorted();
    assert!(sorted.iter().all(|d| d.help.is_some()), "{}", render(&sorted, &sources, false, 100));
    let line = |d: &spinec_ir::diag::Diagnostic| d.span.map_or(0, |s| sources.file(s.file).line_col(s.start).0 + 1);
    sorted.iter().map(|d| (d.code.to_string(), line(d))).collect()
}

#[test]
fn the_record_is_read_in_its_units() {
    let d = Device::from_yaml("h200.yaml", GOOD)
        .unwrap_or_else(|(s, d)| panic!("{}", render(&d.into_sorted(), &s, false, 100)));
    let want = Device {
        name: "h200".to_owned(),
        arch: "sm_90a".to_owned(),
        multiprocessors: 132,
        memory: 143_771 << 20,
        bandwidth: 4_800_000_000_000,
        flops_16: 990_000_000_000_000,
        flops_32: 67_000_000_000_000,
        flops_64: 34_000_000_000_000,
        launch_ps: 2_000_000,
        resident_ps_per_mib: 1_000,
    };
    assert_eq!(d, want);
}

#[test]
fn every_key_must_be_there_and_no_other() {
    for line in GOOD.lines().filter(|l| l.contains(": ") && !l.starts_with('#')) {
        let without = GOOD.replacen(&format!("{line}\n"), "", 1);
        let found = errors(&without);
        assert!(found.len() == 1 && found[0].0 == "E0202", "{line}: {found:?}");
    }
    assert_eq!(errors(&format!("{GOOD}warp: 32\n")), [("E0201".to_owned(), 14)]);
    assert_eq!(errors(&format!("{GOOD}arch: sm_80\n"))[0].0, "E0102");
}

#[test]
fn wrong_quantities_are_errors_at_their_place() {
    for (from, to, code) in [
        ("unit: B/s", "unit: GB/s", "E0304"),
        ("value: 4.8e12", "value: -1", "E0304"),
        ("value: 4.8e12", "value: .inf", "E0304"),
        ("value: 4.8e12", "value: .nan", "E0304"),
        ("value: 4.8e12", "value: 1.0e30", "E0304"),
        ("value: 4.8e12", "value: fast", "E0107"),
        ("{value: 4.8e12, unit: B/s, source: data sheet}", "4.8e12", "E0107"),
        ("unit: B/s, source: data sheet", "unit: B/s", "E0202"),
        ("unit: B/s, source: data sheet", "unit: B/s, sauce: data sheet, source: x", "E0201"),
        ("value: 2.0e-6", "value: 1.0e-13", "E0304"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let line = GOOD.lines().position(|l| l.contains(from)).map_or(0, |l| l as u32 + 1);
        assert_eq!(errors(&text), [(code.to_owned(), line)], "{to}");
    }
    for text in ["", "[]", "device", "device: [1]", ": :"] {
        assert!(!errors(text).is_empty(), "{text}");
    }
}
