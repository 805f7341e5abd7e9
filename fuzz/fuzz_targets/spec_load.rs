//! Loads any bytes as a spec and renders what is found. The seeds are the specs of the repository:
//! `cargo fuzz run spec_load graphs/parts tests/filetests/diagnostics`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spinec_ir::diag::{render, to_json};
use spinec_ir::spec::system::Overrides;
use spinec_ir::spec::{Host, Loaded, load};

/// One file, which may also refer to itself.
struct One<'a>(&'a [u8]);

impl Host for One<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "config/config.json" => Ok(br#"{"hidden_size": 64, "layer_types": ["a", "b"]}"#.to_vec()),
            p if p.ends_with(".yaml") => Ok(self.0.to_vec()),
            _ => Err("no such file".into()),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (sources, diags) = match load("x.yaml", &One(bytes), &Overrides::default()) {
        Loaded::Graph { sources, diags } => (sources, diags),
        Loaded::System(s) => (s.sources, s.diags),
    };
    let list = diags.into_sorted();
    assert_eq!(to_json(&list, &sources).len(), list.len());
    let _ = render(&list, &sources, false, 100);
});
