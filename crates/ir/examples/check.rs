//! Checks spec files and prints every diagnostic: `cargo run -p spinec-ir --example check -- FILE...`

use spinec_ir::diag::render;
use spinec_ir::spec::system::Overrides;
use spinec_ir::spec::{Host, Loaded, load};

struct Disk;

impl Host for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|e| e.to_string())
    }
}

fn main() {
    for path in std::env::args().skip(1) {
        let start = std::time::Instant::now();
        let (sources, diags) = match load(&path, &Disk, &Overrides::default()) {
            Loaded::Graph { sources, diags } => (sources, diags),
            Loaded::System(s) => (s.sources, s.diags),
        };
        let list = diags.into_sorted();
        print!("{}", render(&list, &sources, false, 120));
        println!("{path}: {} diagnostics, {:?}", list.len(), start.elapsed());
    }
}
