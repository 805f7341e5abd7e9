//! Binding inputs, loops, cases, weights, observers, errors.

mod interp_support;

use interp_support::*;
use spinec_ir::diag::{FileId, Span};
use spinec_ir::interp::{Mode, run};
use spinec_ir::ir::{Attr, Attrs, Keep};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Dim};

#[test]
fn kept_values_stack_along_any_axis() {
    for (axis, shape, want) in [
        (0, [2, 2, 3], [0, 0, 0, 0, 0, 0, 2, 2, 2, 4, 4, 4]),
        (1, [2, 2, 3], [0, 0, 0, 2, 2, 2, 0, 0, 0, 4, 4, 4]),
        (2, [2, 3, 2], [0, 2, 0, 2, 0, 2, 0, 4, 0, 4, 0, 4]),
    ] {
        let mut g = Graph::default();
        let x = g.input("x", ty(DType::I32, "N 3"));
        let keeps = vec![Keep { axis, at: Some(vec![0, 2]) }];
        // Row r of iteration i is i * (r + 1).
        let out = g.repeat("layers", Dim::from(3), &[], keeps, |g, i, _| {
            let v = g.op(Opcode::Mul, &[x, i], Attrs::new());
            (vec![], vec![v])
        });
        g.output(out[0]);
        let x = i32s(&[2, 3], &[1, 1, 1, 2, 2, 2]);
        assert_eq!(g.run(&[x]).unwrap(), [i32s(&shape, &want)], "axis {axis}");
    }
}

#[test]
fn an_extent_may_be_a_symbol_and_zero() {
    let mut g = Graph::default();
    let x = g.input("x", ty(DType::F64, "N"));
    let one = g.constant(1.0, DType::F64);
    let keeps = vec![Keep { axis: 0, at: None }];
    let out = g.repeat("walk", dim("N"), &[one], keeps, |g, i, c| {
        let xi = g.op(Opcode::IndexAt, &[x, i], axis(0));
        let next = g.op(Opcode::Mul, &[c[0], xi], Attrs::new());
        (vec![next], vec![next])
    });
    out.into_iter().for_each(|v| g.output(v));
    let out = g.run(&[f64s(&[3], &[2., 3., 4.])]).unwrap();
    assert_eq!(out, [f64s(&[], &[24.]), f64s(&[3], &[2., 6., 24.])]);
    assert_eq!(g.run(&[f64s(&[0], &[])]).unwrap(), [f64s(&[], &[1.]), f64s(&[0], &[])]);
}

#[test]
fn loops_select_weights_and_cases_and_are_observed_by_path() {
    let mut g = Graph::default();
    let x = g.input("x", ty(DType::F64, "2"));
    g.name(x, "x");
    let out = g.repeat("layers", Dim::from(2), &[x], vec![], |g, l, c| {
        g.name(c[0], "layers.x");
        let w = g.weight("layers.{l}.w", ty(DType::F64, "2"), &[("l", 2)], &[l]);
        let case = g.cases(l, &[1, 0], &[&|g| g.constant(100.0, DType::F64), &|g| g.constant(200.0, DType::F64)]);
        g.name(case, "layers.mixed.case");
        g.name(case, "layers.secret");
        let y = g.op(Opcode::Mul, &[c[0], w], Attrs::new());
        let y = g.op(Opcode::Add, &[y, case], Attrs::new());
        let inner = g.repeat("layers.walk", Dim::from(2), &[y], vec![], |g, i, c| {
            let z = g.op(Opcode::Add, &[c[0], i], Attrs::new());
            g.name(z, "layers.walk.z");
            (vec![z], vec![])
        });
        (inner, vec![])
    });
    g.name(out[0], "layers.x");
    g.output(out[0]);
    for l in 0..2 {
        g.weights.0.insert((0, vec![l]), f64s(&[2], &[l as f64 + 2.0, 1.0]));
    }
    let mut seen = Recorder::default();
    let x = f64s(&[2], &[1., 2.]);
    let out = run(&g.module, &g.func, &[x], &g.weights, &mut [], Mode::Immediate, &mut seen).unwrap();
    assert_eq!(out, [f64s(&[2], &[203. * 3. + 101., 203. + 101.])]);
    let paths: Vec<&str> = seen.0.iter().map(|(p, _)| p.as_str()).collect();
    let layer = |l: usize| {
        [
            format!("layers.{l}.x"),
            format!("layers.{l}.mixed.case"),
            format!("layers.{l}.walk.0.z"),
            format!("layers.{l}.walk.1.z"),
        ]
    };
    let want: Vec<String> =
        ["x".into()].into_iter().chain(layer(0)).chain(layer(1)).chain(["layers.x".into()]).collect();
    assert_eq!(paths, want);
    let find = |p: &str| seen.0.iter().find(|(q, _)| q == p).map(|(_, t)| t.clone()).unwrap();
    assert_eq!(find("layers.0.mixed.case"), f64s(&[], &[200.]));
    assert_eq!(find("layers.1.x"), f64s(&[2], &[203., 203.]));
    assert_eq!(find("layers.0.walk.1.z"), f64s(&[2], &[203., 203.]));
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let mut g = Graph::default();
    let a = g.input("tokens", ty(DType::I32, "N T"));
    let double = dim("N").mul(&Dim::from(2)).unwrap();
    let b = g.input("pairs", spinec_ir::ty::TensorType::new(DType::F32, vec![double, dim("3")]));
    let c = g.input("rows", ty(DType::I32, "N"));
    [a, b, c].into_iter().for_each(|v| g.output(v));
    let tokens = || i32s(&[2, 5], &[0; 10]);
    let pairs = |n| f32s(&[n, 3], &vec![0.0; n * 3]);
    assert!(g.run(&[tokens(), pairs(4), i32s(&[2], &[0, 0])]).is_ok());
    for (inputs, words) in [
        (vec![tokens(), pairs(4)], vec!["takes 3 inputs", "2 are given"]),
        (vec![tokens(), pairs(4), i32s(&[3], &[0; 3])], vec!["axis 0", "`rows`", "extent 3", "N is 2", "`tokens`"]),
        (vec![tokens(), pairs(3), i32s(&[2], &[0; 2])], vec!["axis 0", "`pairs`", "extent 3", "2*N is 4"]),
        (vec![tokens(), f32s(&[4, 2], &[0.0; 8]), i32s(&[2], &[0; 2])], vec!["axis 1", "extent 2", "it must have 3"]),
        (vec![tokens(), f64s(&[4, 3], &[0.0; 12]), i32s(&[2], &[0; 2])], vec!["`pairs`", "f32", "f64"]),
        (vec![i32s(&[2], &[0; 2]), pairs(4), i32s(&[2], &[0; 2])], vec!["`tokens`", "i32[N, T]", "[2]"]),
    ] {
        let message = g.run(&inputs).unwrap_err().to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message}");
    }
}

#[test]
fn an_error_says_where_it_happened() {
    let mut g = Graph::default();
    let x = g.input("x", ty(DType::F32, "N"));
    g.repeat("layers", Dim::from(2), &[], vec![], |g, _, _| {
        let k = g.ops(Opcode::TopK, &[x], attrs([("k", Attr::Dim(Dim::from(4)))]));
        g.output(k[0]);
        (vec![], vec![])
    });
    let span = Span { file: FileId(0), start: 3, end: 9 };
    g.func.ops.iter_mut().filter(|op| op.code == Opcode::TopK).for_each(|op| op.loc.span = Some(span));
    let e = g.run(&[f32s(&[3], &[0.0; 3])]).unwrap_err();
    assert_eq!((&*e.path, e.span), ("layers", Some(span)));
    assert!(e.to_string().contains("topk") && e.to_string().contains('3'), "{e}");
}

#[test]
fn absent_weights_and_cases_are_errors() {
    let mut g = Graph::default();
    let i = g.input("i", ty(DType::I32, ""));
    let w = g.weight("layers.{l}.w", ty(DType::F64, "1"), &[("l", 3)], &[i]);
    g.module.weights[0].present = vec![true, false, true];
    g.output(w);
    g.weights.0.insert((0, vec![0]), f64s(&[1], &[5.0]));
    let at = |i| g.run(&[i32s(&[], &[i])]).map_err(|e| e.message);
    assert_eq!(at(0).unwrap(), [f64s(&[1], &[5.0])]);
    assert!(at(1).unwrap_err().contains("does not exist at [1]"));
    assert!(at(2).unwrap_err().contains("nobody stored it"));
    assert!(at(3).unwrap_err().contains("l = 3 is not within 0..3"));

    g.weights.0.insert((0, vec![2]), f64s(&[2], &[5.0, 6.0]));
    let e = g.run(&[i32s(&[], &[2])]).unwrap_err();
    assert!(e.message.contains("f64[2]") && e.message.contains("f64[1]"), "{e}");

    let mut g = Graph::default();
    let i = g.input("i", ty(DType::I32, ""));
    let v = g.cases(i, &[0], &[&|g| g.constant(1.0, DType::F64)]);
    g.output(v);
    assert!(g.run(&[i32s(&[], &[1])]).unwrap_err().message.contains("no case for index 1"));
}

#[test]
fn entries_of_an_empty_axis_are_errors_unless_nothing_is_taken() {
    let x = f64s(&[2, 0], &[]);
    assert!(try_eval(Opcode::IndexAt, &[x.clone(), i32s(&[], &[0])], axis(1)).is_err());
    assert!(try_eval(Opcode::Take, &[x.clone(), i32s(&[2, 1], &[0, 0])], axis(1)).is_err());
    assert_eq!(eval(Opcode::Take, &[x.clone(), i32s(&[2, 0], &[])], axis(1)), [x]);
    assert!(try_eval(Opcode::Draw, &[f64s(&[1, 0], &[]), f64s(&[1], &[0.5])], Attrs::new()).is_err());
    assert_eq!(eval(Opcode::Argmax, &[f64s(&[1, 0], &[])], axis(1)), [i32s(&[1], &[0])]);
}

#[test]
fn a_tensor_beyond_the_limit_is_refused() {
    let mut g = Graph::default();
    let one = g.constant(1.0, DType::F64);
    let dims = vec![Dim::from(1 << 31), Dim::from(1 << 31)];
    let v = g.op(Opcode::Fill, &[one], attrs([("dims", Attr::Dims(dims))]));
    g.output(v);
    assert!(g.run(&[]).unwrap_err().message.contains("more than"));
}
