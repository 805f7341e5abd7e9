//! Files of tensors: golden data reads, every type survives a round trip, bad files are typed errors.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use safetensors::SafeTensors;
use spinec_exec::checkpoint::{CheckpointErrorKind as Kind, Dtype, TensorSpec, write_safetensors};
use spinec_exec::tensorfile::{Tensor, TensorData, TensorError, read_tensors, write_tensors};

#[test]
fn golden_tensors_survive_a_round_trip() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden");
    let dir = tempfile::tempdir().unwrap();
    for set in ["s0", "s1", "s3", "s4"] {
        for file in ["target/golden", "drafter/golden", "dflash/golden", "verify", "target/model"] {
            let path = golden.join(set).join(file).with_extension("safetensors");
            let tensors = read_tensors(&path).unwrap();
            let copy = dir.path().join("copy.safetensors");
            write_tensors(&copy, &tensors).unwrap();
            assert_eq!(read_tensors(&copy).unwrap(), tensors);
            let (a, b) = (fs::read(&path).unwrap(), fs::read(&copy).unwrap());
            let (a, b) = (SafeTensors::deserialize(&a).unwrap(), SafeTensors::deserialize(&b).unwrap());
            assert_eq!(a.len(), b.len());
            for (name, t) in a.iter() {
                let u = b.tensor(name).unwrap();
                assert_eq!((t.dtype(), t.shape(), t.data()), (u.dtype(), u.shape(), u.data()), "{name}");
            }
        }
    }
}

#[test]
fn golden_inputs_have_the_expected_types() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden/s1");
    let verify = read_tensors(&golden.join("verify.safetensors")).unwrap();
    assert_eq!((verify["logits"].dtype(), verify["logits"].shape()), (Dtype::F32, &[96, 16, 97][..]));
    assert!(matches!(verify["q"].data(), TensorData::F64(v) if v.len() == 96 * 15 * 16));
    let drafter = read_tensors(&golden.join("drafter/golden.safetensors")).unwrap();
    assert!(matches!(drafter["anchor"].data(), TensorData::I32(v) if v.len() == 1));
    let weights = read_tensors(&golden.join("target/model.safetensors")).unwrap();
    let embed = &weights["model.embed_tokens.weight"];
    assert!(embed.dtype() == Dtype::BF16 && matches!(embed.data(), TensorData::F32(_)));
}

#[test]
fn tensors_check_their_parts() {
    let f = |n| TensorData::F32(vec![0.0; n]);
    assert!(Tensor::new(vec![2, 3], f(6)).is_ok());
    assert!(Tensor::new(vec![], f(1)).is_ok());
    assert!(Tensor::new(vec![0, 7], f(0)).is_ok());
    assert!(matches!(Tensor::new(vec![2, 3], f(5)), Err(TensorError::Length { len: 5, .. })));
    assert!(matches!(Tensor::new(vec![usize::MAX, 2], f(0)), Err(TensorError::Length { .. })));
    assert!(matches!(Tensor::new(vec![1; 9], f(1)), Err(TensorError::TooManyDims(9))));
    assert!(Tensor::stored_as(Dtype::BF16, vec![1], f(1)).is_ok());
    assert_eq!(Tensor::stored_as(Dtype::F64, vec![1], f(1)), Err(TensorError::Kind(Dtype::F64)));
    assert_eq!(
        Tensor::stored_as(Dtype::BF16, vec![1], TensorData::F64(vec![0.0])),
        Err(TensorError::Kind(Dtype::BF16))
    );
}

#[test]
fn files_that_are_not_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    let kinds = || read_tensors(&path).unwrap_err().into_iter().map(|e| e.kind).collect::<Vec<_>>();
    assert_eq!(kinds(), [Kind::NotFound]);
    fs::write(&path, "").unwrap();
    assert!(matches!(kinds()[..], [Kind::Safetensors(_)]));
    let spec = |name: &str, dtype| TensorSpec { name: name.into(), dtype, shape: vec![3] };
    let specs = [spec("a", Dtype::F8_E4M3), spec("b", Dtype::BOOL), spec("c", Dtype::U8), spec("d", Dtype::I8)];
    write_safetensors(&path, &[], &specs, |_, out| out.write_all(&[0, 1, 2])).unwrap();
    let expected = [
        Kind::UnsupportedDtype { tensor: "a".into(), dtype: Dtype::F8_E4M3 },
        Kind::BadBool { tensor: "b".into(), index: 2, value: 2 },
        Kind::UnsupportedDtype { tensor: "d".into(), dtype: Dtype::I8 },
    ];
    assert_eq!(kinds(), expected);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(kinds(), [Kind::NotAFile]);
}

fn tensor() -> impl Strategy<Value = Tensor> {
    prop::collection::vec(0usize..4, 0..4).prop_flat_map(|shape| {
        let n: usize = shape.iter().product();
        let make = move |dtype, data| Tensor::stored_as(dtype, shape.clone(), data).unwrap();
        let data = prop_oneof![
            prop::collection::vec(any::<f64>(), n).prop_map(|v| (Dtype::F64, TensorData::F64(v))),
            prop::collection::vec(any::<f32>(), n).prop_map(|v| (Dtype::F32, TensorData::F32(v))),
            // Multiples of 1/8 below 32 are exact in both half types.
            (prop::collection::vec(-255i16..255, n), any::<bool>()).prop_map(|(v, brain)| {
                let v = v.into_iter().map(|x| f32::from(x) / 8.0).collect();
                (if brain { Dtype::BF16 } else { Dtype::F16 }, TensorData::F32(v))
            }),
            prop::collection::vec(any::<i64>(), n).prop_map(|v| (Dtype::I64, TensorData::I64(v))),
            prop::collection::vec(any::<i32>(), n).prop_map(|v| (Dtype::I32, TensorData::I32(v))),
            prop::collection::vec(any::<u8>(), n).prop_map(|v| (Dtype::U8, TensorData::U8(v))),
            prop::collection::vec(any::<bool>(), n).prop_map(|v| (Dtype::BOOL, TensorData::Bool(v))),
        ];
        data.prop_map(move |(dtype, data)| make(dtype, data))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tensors_survive_a_round_trip(tensors in prop::collection::btree_map(".{0,8}", tensor(), 0..6)) {
        let tensors: BTreeMap<String, Tensor> = tensors;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        write_tensors(&path, &tensors).unwrap();
        prop_assert_eq!(read_tensors(&path).unwrap(), tensors);
    }
}
