//! The commands as a caller sees them.

use spinec_ptx::Options;
use spinec_ptx::cli::{CheckOptions, RunOptions, check, parse_dim3, run};
use std::path::PathBuf;

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let p = std::env::temp_dir().join(format!("spinec-ptx-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&p).expect("temporary folder");
        Self(p)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let p = self.0.join(name);
        std::fs::write(&p, bytes).expect("temporary file");
        p
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SCALE: &str = ".version 9.0\n.target sm_80\n.address_size 64\n
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 f, .param .u32 n) {
  .reg .pred %p; .reg .f32 %f<3>; .reg .b32 %r<3>; .reg .b64 %rd<5>;
  mov.u32 %r1, %tid.x;
  ld.param.u32 %r2, [n];
  setp.ge.u32 %p, %r1, %r2;
  @%p bra END;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.f32 %f1, [%rd4];
  ld.param.f32 %f2, [f];
  mul.f32 %f1, %f1, %f2;
  add.s64 %rd4, %rd2, %rd3;
  st.global.f32 [%rd4], %f1;
END:
  ret;
}";

fn options(f: &Folder, ptx: &str, spec: &str) -> RunOptions {
    RunOptions {
        file: f.write("k.ptx", ptx.as_bytes()),
        entry: "scale".into(),
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: None,
        shared: 0,
        args: f.write("spec.json", spec.as_bytes()),
        json: true,
        launch: Options::default(),
    }
}

fn floats(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn runs_and_writes_back() {
    let f = Folder::new("run");
    f.write("x.bin", &floats(&[1.0, 2.0, 3.0]));
    let spec = r#"{"args": [{"buffer": "x.bin", "mode": "in"}, {"buffer": "y.bin", "mode": "out", "bytes": 16},
                           {"f32": 1.5}, {"u32": 3}]}"#;
    let out = run(&options(&f, SCALE, spec));
    assert_eq!(out.exit_code, 0, "{out:?}");
    let v: serde_json::Value = serde_json::from_str(&out.stdout).expect("one JSON object");
    assert_eq!(v["schema"], "spinec.ptx.run/1");
    assert_eq!(v["findings"], serde_json::json!([]));
    assert_eq!(v["counters"]["total"]["bytes_loaded"], 12);
    assert_eq!(v["counters"]["total"]["bytes_stored"], 12);
    assert_eq!(v["counters"]["unique_bytes"], 64);
    assert_eq!(v["unwritten"], serde_json::json!([{"buffer": "y.bin", "bytes": 4}]));
    assert_eq!(std::fs::read(f.0.join("y.bin")).expect("written"), floats(&[1.5, 3.0, 4.5, 0.0]));
    let text = run(&RunOptions { json: false, ..options(&f, SCALE, spec) });
    assert!(text.stdout.contains("global requests"), "{}", text.stdout);
    assert!(text.stderr.contains("note: 4 bytes of `y.bin` were never written"), "{}", text.stderr);
}

#[test]
fn findings_fail() {
    let f = Folder::new("findings");
    f.write("x.bin", &floats(&[1.0, 2.0]));
    let spec = r#"{"args": [{"buffer": "x.bin", "mode": "in"}, {"buffer": "y.bin", "mode": "out", "bytes": 16},
                           {"f32": 1.5}, {"u32": 3}]}"#;
    let out = run(&options(&f, SCALE, spec));
    assert_eq!(out.exit_code, 1);
    let v: serde_json::Value = serde_json::from_str(&out.stdout).expect("one JSON object");
    let finding = &v["findings"][0];
    assert_eq!((finding["kind"].as_str(), finding["ptx_line"].as_u64()), (Some("out_of_bounds"), Some(15)));
    assert_eq!(finding["message"], "buffer `x.bin`: offset 8 size 4 of 8 bytes");
}

#[test]
fn wrong_input_has_its_exit_code() {
    let f = Folder::new("wrong");
    f.write("x.bin", &floats(&[1.0]));
    let code = |spec: &str| run(&options(&f, SCALE, spec)).exit_code;
    assert_eq!(code("not json"), 2);
    assert_eq!(code(r#"{"args": [{"buffer": "x.bin"}]}"#), 2);
    assert_eq!(code(r#"{"args": [{"u32": 1, "i32": 2}]}"#), 2);
    assert_eq!(code(r#"{"args": [{"u33": 1}]}"#), 2);
    assert_eq!(code(r#"{"args": [{"u32": 1}]}"#), 2);
    assert_eq!(code(r#"{"args": [{"buffer": "none.bin", "mode": "in"}]}"#), 3);
    let unknown = run(&RunOptions { entry: "other".into(), ..options(&f, SCALE, "{}") });
    assert_eq!(unknown.exit_code, 2);
    assert!(unknown.stderr.contains("the module has: scale"), "{}", unknown.stderr);
    assert_eq!(run(&RunOptions { file: "/nonexistent.ptx".into(), ..options(&f, SCALE, "{}") }).exit_code, 3);
    let bad = SCALE.replace("mul.f32", "mul.f31");
    let out = run(&options(&f, &bad, "{}"));
    assert_eq!(out.exit_code, 1);
    assert!(out.stderr.contains("k.ptx:17:3: unsupported: instruction `mul.f31` is not supported"), "{}", out.stderr);
}

#[test]
fn check_lists_every_error() {
    let f = Folder::new("check");
    let file = f.write("k.ptx", SCALE.as_bytes());
    let out = check(&CheckOptions { file: file.clone(), json: true });
    assert_eq!(out.exit_code, 0);
    let v: serde_json::Value = serde_json::from_str(&out.stdout).expect("one JSON object");
    assert_eq!(
        (v["schema"].as_str(), v["kernels"][0]["params"][2]["name"].as_str()),
        (Some("spinec.ptx.check/1"), Some("f"))
    );
    let bad = SCALE.replace("mul.f32", "frob.f32").replace("bra END", "bra STOP").replace("[x]", "[z]");
    f.write("k.ptx", bad.as_bytes());
    let out = check(&CheckOptions { file: file.clone(), json: true });
    assert_eq!(out.exit_code, 1);
    let v: serde_json::Value = serde_json::from_str(&out.stdout).expect("one JSON object");
    let list: Vec<_> = v["diagnostics"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|d| (d["kind"].as_str().unwrap_or(""), d["line"].as_u64().unwrap_or(0), d["column"].as_u64().unwrap_or(0)))
        .collect();
    assert_eq!(list, [("resolve", 10, 11), ("resolve", 11, 23), ("unsupported", 17, 3)]);
    let text = check(&CheckOptions { file, json: false });
    assert!(text.stderr.contains("k.ptx:10:11: resolve: label `STOP` is not defined here"), "{}", text.stderr);
}

#[test]
fn dimensions() {
    assert_eq!(parse_dim3("4"), Ok([4, 1, 1]));
    assert_eq!(parse_dim3("4, 2,3"), Ok([4, 2, 3]));
    assert!(parse_dim3("1,2,3,4").is_err() && parse_dim3("x").is_err());
}
