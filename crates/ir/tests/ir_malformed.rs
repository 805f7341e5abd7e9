//! Malformed modules that no text can describe, and the decorated print.

use spinec_ir::diag::codes;
use spinec_ir::ir::text::{annotate, parse, parse_mapped, print};
use spinec_ir::ir::verify::{MAX_NESTING, Site, verify};
use spinec_ir::ir::*;
use spinec_ir::ty::{DType, Dim, TensorType};

const TEXT: &str = r#"spinec-ir 1
module "m" numerics=f32

weight 0 "w" : f32[4]

func "f"
  input "x" = %0 : f32[4]
  %1 = weight() {weight=0} : f32[4]
  %2 = loop(%0) {extent=2, keep=[], serial=true} : f32[4] at "layers"
    region (%3 : i32[], %4 : f32[4])
      %5 = mul(%4, %1) : f32[4]
      %6 = tanh(%5) : f32[4]
      yield %6
  return "y" = %2
"#;

fn module() -> Module {
    parse(TEXT).unwrap()
}

/// Messages after a change of the only function.
fn after(change: impl FnOnce(&mut Func)) -> Vec<String> {
    let mut m = module();
    assert_eq!(verify(&m), []);
    change(&mut m.funcs[0]);
    let errors = verify(&m);
    assert_eq!(annotate(&m, &errors).matches("\n; error: ").count(), errors.len());
    let once = canonical(&m);
    assert_eq!(print(&canonical(&once)), print(&once));
    errors.into_iter().map(|e| e.message).collect()
}

#[test]
fn regions_that_nest_in_a_circle() {
    assert_eq!(
        after(|f| f.ops[2].regions.push(RegionId(1))),
        ["region 1 has a second owner", "`mul` cannot have 1 regions"]
    );
    assert_eq!(after(|f| f.ops[1].regions[0] = RegionId(0))[0], "region 0 has a second owner");
}

#[test]
fn ids_out_of_range() {
    assert_eq!(after(|f| f.ops[2].operands[0] = ValueId(99)), ["value 99 does not exist"]);
    assert_eq!(after(|f| f.regions[1].yields[0] = ValueId(99)), ["value 99 does not exist"]);
    assert_eq!(after(|f| f.ops[1].regions[0] = RegionId(9)), ["region 9 does not exist"]);
    assert_eq!(after(|f| f.regions[0].ops.push(OpId(9))), ["op 9 does not exist"]);
    assert_eq!(after(|f| f.body = RegionId(9)), ["region 9 does not exist"]);
    assert_eq!(
        after(|f| f.regions[0].params.push(ValueId(u32::MAX))),
        ["1 input names for 2 parameters of the body", "value 4294967295 does not exist"]
    );
}

#[test]
fn links_that_do_not_lead_back() {
    assert_eq!(after(|f| f.regions[1].ops.push(OpId(2))), ["op 2 (`mul`) has a second place"]);
    assert_eq!(
        after(|f| f.values[5].def = ValueDef::Param(RegionId(1), 1)),
        ["value 5 is defined here but its definition is recorded as Param(RegionId(1), 1)"]
    );
    assert_eq!(
        after(|f| f.ops[3].results[0] = ValueId(5)),
        [
            "value 5 is defined here but its definition is recorded as Result(OpId(2), 0)",
            "%?6 is used but nothing in the function defines it"
        ]
    );
}

#[test]
fn attributes_of_another_kind_or_op() {
    assert_eq!(
        after(|f| drop(f.ops[1].attrs.insert("serial", Attr::Int(1)))),
        ["attribute `serial` must be of kind Bool, not Int"]
    );
    assert_eq!(after(|f| drop(f.ops[2].attrs.insert("axis", Attr::Int(1)))), ["`mul` has no attribute `axis`"]);
    assert_eq!(after(|f| drop(f.ops[1].attrs.remove("extent"))), ["`loop` needs the attribute `extent`"]);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| {
        let mut m = module();
        let f = &mut m.funcs[0];
        *f = Func::new("f");
        let mut region = f.body;
        for _ in 0..depth {
            let inner = f.add_region();
            f.add_param(inner, TensorType::scalar(DType::I32).into());
            let attrs = Attrs::from([
                ("extent", Attr::Dim(Dim::from(1))),
                ("keep", Attr::Keeps(vec![])),
                ("serial", Attr::Bool(true)),
            ]);
            f.add_op(region, spinec_ir::ops::Opcode::Loop, vec![], attrs, vec![inner], vec![], Loc::default());
            region = inner;
        }
        m
    };
    let deepest = nested(MAX_NESTING);
    assert_eq!(verify(&deepest), []);
    assert_eq!(parse(&print(&deepest)).unwrap(), deepest);
    for depth in [MAX_NESTING + 1, 100_000] {
        let m = nested(depth);
        let messages: Vec<String> = verify(&m).into_iter().map(|e| e.message).collect();
        assert_eq!(messages, ["regions nest deeper than 64 levels"]);
        assert!(print(&m).len() < 100_000);
    }
}

#[test]
fn names_with_any_character_survive() {
    let mut m = module();
    m.name = "a \"b\"\n; \u{2028}é".to_owned();
    m.funcs[0].inputs[0] = "\\".to_owned();
    m.funcs[0].values[5].names = vec!["\t".into(), "".into()];
    m.funcs[0].ops[2].loc.path = "x; y".into();
    assert_eq!(verify(&m), []);
    assert_eq!(parse(&print(&m)).unwrap(), m);
}

#[test]
fn the_decorated_print_shows_errors_below_their_lines() {
    let mut m = module();
    m.funcs[0].ops[2].operands.push(ValueId(0));
    m.funcs[0].values[2].ty = TensorType::new(DType::F32, vec![]).into();
    m.funcs[0].ops[1].regions.push(RegionId(7));
    m.weights[0].present = vec![true, false];
    let errors = verify(&m);
    let text = annotate(&m, &errors);
    let expected = r#"spinec-ir 1
module "m" numerics=f32

weight 0 "w" : f32[4] present=10
; ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
; error: the weight has 1 elements, its present mask has 2

func "f"
  input "x" = %0 : f32[4]
  %1 = weight() {weight=0} : f32[4]
  %2 = loop(%0) {extent=2, keep=[], serial=true} : f32[] at "layers"
; ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
; error: region 7 does not exist
; error: `loop` cannot have 2 regions
; error: result 0 must be f32[4], %2 is f32[]
    region (%3 : i32[], %4 : f32[4])
      %5 = mul(%4, %1, %0) : f32[4]
;     ^~~~~~~~~~~~~~~~~~~~~~~~~~~~~
; error: `mul` takes (a, b), not 3 operands
      %6 = tanh(%5) : f32[4]
      yield %6
  return "y" = %2
"#;
    assert_eq!(text, expected);
    let at_loop = errors.iter().find(|e| e.path.as_ref() == "layers").unwrap();
    assert_eq!(at_loop.site, Site::Op(FuncId(0), OpId(1)));
    assert_eq!(at_loop.to_string(), "function f: layers: region 7 does not exist");
    assert_eq!(at_loop.to_diagnostic().code, codes::INTERNAL_IR);
}

#[test]
fn every_site_of_a_parsed_module_has_a_line() {
    let (_, lines) = parse_mapped(TEXT).unwrap();
    let f = FuncId(0);
    let want = [
        (Site::Module, 1),
        (Site::Weight(WeightId(0)), 4),
        (Site::Func(f), 6),
        (Site::Param(f, RegionId(0), 0), 7),
        (Site::Op(f, OpId(1)), 9),
        (Site::Region(f, RegionId(1)), 10),
        (Site::Param(f, RegionId(1), 1), 10),
        (Site::Yield(f, RegionId(1)), 13),
        (Site::Yield(f, RegionId(0)), 14),
    ];
    for (site, line) in want {
        assert_eq!(lines.line(site), Some(line), "{site:?}");
    }
    assert_eq!(lines.line(Site::Symbol(0)), None);
}
