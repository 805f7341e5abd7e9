//! Checkpoints: Hugging Face directories with `config.json` and memory-mapped safetensors weights.
//!
//! [`Checkpoint::open`] checks the whole directory and reports every problem at once. Afterwards access cannot fail: each
//! tensor lies wholly inside its file, and its bytes are what dtype and shape ask for. Tensor bytes may be unaligned;
//! [`TensorView`] reads them in any case. The files must not be changed while a checkpoint is open.

mod config;
mod convert;
mod entry;
mod error;
pub mod header;
mod json;
mod layout;
mod mapped;
mod open;
mod problem;
mod synth;
mod write;

pub use convert::{ConvertError, TensorView, encode_f32, encode_f64};
pub use error::{CheckpointError, CheckpointErrorKind};
pub use open::{Checkpoint, TensorInfo};
pub use problem::{HeaderProblem, MAX_HEADER_BYTES, MAX_PROBLEMS, MAX_RANK, MAX_TENSORS};
/// Element types of the safetensors format.
pub use safetensors::Dtype;
pub use synth::{Init, SynthTensor, fill_synth, write_synth_checkpoint, write_synth_checkpoint_unless};
pub use write::{NewCheckpoint, TensorSpec, WriteError, WriteErrorKind, write_checkpoint, write_safetensors};

pub(crate) use convert::{decode, encode};
pub(crate) use json::{check_syntax, open_regular, read_text};
