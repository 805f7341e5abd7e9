//! The PTX that the interpreter's tests read is what NVRTC makes of the kernels beside it.
//!
//! Needs NVRTC (scripts/fetch-nvrtc.sh). Without it the test reports that it was skipped, or fails when
//! `SPINEC_REQUIRE_NVRTC=1` says that it must be there. `SPINEC_BLESS=1` rewrites the stored PTX.
#![cfg(feature = "nvrtc")]

use spinec_codegen_cuda::{Nvrtc, NvrtcError, Options};
use std::path::{Path, PathBuf};

/// Kernels and the architectures they compile for.
const KERNELS: [(&str, &[&str]); 13] = [
    ("rmsnorm", ALL),
    ("gemm_mma", ALL),
    ("gemm_wgmma", HOPPER),
    ("topk", ALL),
    ("attn", ALL),
    ("gdn", ALL),
    ("sample", ALL),
    ("fp8quant", ALL),
    ("misc", ALL),
    ("lastblock", ALL),
    ("transpose", ALL),
    ("tmastore", HOPPER),
    ("cluster", HOPPER),
];
const ALL: &[&str] = &["sm_80", "sm_90a", "sm_100a"];
const HOPPER: &[&str] = &["sm_90a"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ptx/tests")
}

fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::load() {
        Ok(n) => Some(n),
        Err(e) if std::env::var("SPINEC_REQUIRE_NVRTC").as_deref() == Ok("1") => panic!("{e}"),
        Err(e) => {
            eprintln!("skipped: {e}");
            None
        }
    }
}

fn options(arch: &str) -> Options {
    let mut o = Options { line_info: true, ..Options::new(arch) };
    if arch == "sm_80" {
        // No e4m3 conversion instruction before sm_89.
        o.defines.push("SOFT".into());
    }
    o
}

fn compare(path: &Path, ptx: &str, stale: &mut Vec<String>) {
    if std::env::var("SPINEC_BLESS").as_deref() == Ok("1") {
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder is writable");
        std::fs::write(path, ptx).expect("data folder is writable");
    } else if std::fs::read_to_string(path).ok().as_deref() != Some(ptx) {
        stale.push(path.display().to_string());
    }
}

#[test]
fn stored_ptx_is_current() {
    let Some(nvrtc) = nvrtc() else { return };
    let mut stale = Vec::new();
    for (name, archs) in KERNELS {
        let source = std::fs::read_to_string(folder().join(format!("kernels/{name}.cu"))).expect("kernel exists");
        for arch in archs {
            let out = nvrtc
                .compile(&source, &format!("{name}.cu"), &options(arch))
                .unwrap_or_else(|e| panic!("{name} {arch}: {e}"));
            assert!(!out.kernels.is_empty() && !out.cubin.is_empty(), "{name} {arch}");
            for k in &out.kernels {
                assert!(k.registers > 0 && k.registers <= 255 && k.code_bytes > 0, "{k:?}");
            }
            compare(&folder().join(format!("data/{name}.{arch}.ptx")), &out.ptx, &mut stale);
        }
    }
    assert!(stale.is_empty(), "stale PTX, rerun with SPINEC_BLESS=1: {stale:#?}");
}

#[test]
fn stored_mutants_are_current() {
    let Some(nvrtc) = nvrtc() else { return };
    let text = std::fs::read_to_string(folder().join("mutants.json")).expect("mutants exist");
    let list: serde_json::Value = serde_json::from_str(&text).expect("mutants are JSON");
    let mut stale = Vec::new();
    for m in list.as_array().expect("a list") {
        let get = |k: &str| m[k].as_str().unwrap_or_else(|| panic!("{k} is missing in {m}")).to_string();
        let kernel = get("kernel");
        let source = std::fs::read_to_string(folder().join(format!("kernels/{kernel}.cu"))).expect("kernel exists");
        let find = get("find");
        assert_eq!(source.matches(&find).count(), 1, "{}: the text to replace must occur once", get("name"));
        let mutant = source.replace(&find, &get("replace"));
        let out = nvrtc
            .compile(&mutant, &format!("{kernel}.cu"), &options("sm_90a"))
            .unwrap_or_else(|e| panic!("{}: {e}", get("name")));
        compare(&folder().join(format!("data/mutants/{}.ptx", get("name"))), &out.ptx, &mut stale);
    }
    assert!(stale.is_empty(), "stale PTX, rerun with SPINEC_BLESS=1: {stale:#?}");
}

#[test]
fn resources_and_errors() {
    let Some(nvrtc) = nvrtc() else { return };
    assert!(nvrtc.version().0 >= 12, "{:?}", nvrtc.version());
    let source = "extern \"C\" __global__ void k(float* x) { __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; \
                  __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }";
    let out = nvrtc.compile(source, "k.cu", &Options::new("sm_80")).expect("compiles");
    let k = &out.kernels[0];
    assert_eq!((k.name.as_str(), k.shared_bytes, k.spill_stores, k.param_bytes), ("k", 256, 0, 8));
    assert!(out.ptx.contains(".version 9.0"), "the pinned release writes PTX 9.0");
    // The same input gives the same bytes.
    assert!(out == nvrtc.compile(source, "k.cu", &Options::new("sm_80")).expect("compiles"));
    let bad = nvrtc.compile("void f() { syntax error }", "bad.cu", &Options::new("sm_80"));
    assert!(matches!(bad, Err(NvrtcError::Compile { ref log, .. }) if log.contains("bad.cu(1)")), "{bad:?}");
    let arch = nvrtc.compile(source, "k.cu", &Options::new("sm_1"));
    assert!(matches!(arch, Err(NvrtcError::Compile { .. })), "{arch:?}");
    assert!(matches!(nvrtc.compile("\0", "k.cu", &Options::new("sm_80")), Err(NvrtcError::ZeroByte { .. })));
}

#[test]
fn a_missing_library_is_an_error() {
    let e = Nvrtc::load_from(Path::new("/nonexistent")).err();
    assert!(matches!(e, Some(NvrtcError::NotFound { .. })), "{e:?}");
}
