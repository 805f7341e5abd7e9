//! Global memory: named buffers of the caller.
//!
//! Bytes live in relaxed atomic words, so a kernel with a data race is a finding and never undefined behaviour here,
//! however many threads execute its blocks.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only; all bytes are given.
    In,
    /// Written by the kernel; reading a byte before it is written is a finding.
    Out,
    /// Read and written; all bytes are given.
    InOut,
}

/// A buffer of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferId(pub(crate) usize);

/// Lowest window of buffers; lower ones belong to shared, local and parameter space.
pub(crate) const FIRST_WINDOW: u64 = 16;
/// Window of generic addresses of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 1;
/// Window of generic addresses of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 2;
/// Window of generic addresses of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 3;
/// Address bits of one window.
pub(crate) const WINDOW_BITS: u32 = 44;
/// Offset of a window's first byte, in its middle: an index below zero stays attributable to its buffer.
pub(crate) const WINDOW_BASE: u64 = 1 << (WINDOW_BITS - 1);

/// Generic address of byte 0 of a window.
pub(crate) fn window_base(window: u64) -> u64 {
    window << WINDOW_BITS | WINDOW_BASE
}

/// Window and signed offset of a generic address.
#[inline(always)]
pub(crate) fn split_address(address: u64) -> (u64, i64) {
    let offset = (address & ((1 << WINDOW_BITS) - 1)) as i64 - WINDOW_BASE as i64;
    (address >> WINDOW_BITS, offset)
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) len: usize,
    pub(crate) access: Access,
    words: Box<[AtomicU32]>,
    /// Per word, one bit a byte that holds a value; absent when all do.
    written: Option<Box<[AtomicU8]>>,
}

impl Buffer {
    pub(crate) fn new(name: String, bytes: &[u8], access: Access) -> Self {
        let mut words = Vec::with_capacity(bytes.len().div_ceil(4));
        for chunk in bytes.chunks(4) {
            let mut w = [0; 4];
            w[..chunk.len()].copy_from_slice(chunk);
            words.push(AtomicU32::new(u32::from_le_bytes(w)));
        }
        let written = (access == Access::Out).then(|| (0..bytes.len().div_ceil(4)).map(|_| AtomicU8::new(0)).collect());
        Self { name, len: bytes.len(), access, words: words.into(), written }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out: Vec<u8> = self.words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()).collect();
        out.truncate(self.len);
        out
    }

    pub(crate) fn set_bytes(&self, bytes: &[u8]) {
        for (w, chunk) in self.words.iter().zip(bytes.chunks(4)) {
            let mut b = [0; 4];
            b[..chunk.len()].copy_from_slice(chunk);
            w.store(u32::from_le_bytes(b), Relaxed);
        }
    }

    /// The word that holds the byte at `offset`. The caller has checked the bounds.
    #[inline(always)]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        &self.words[offset >> 2]
    }

    /// An aligned value of 1, 2 or 4 bytes.
    #[inline(always)]
    pub(crate) fn load(&self, offset: usize, size: usize) -> u32 {
        let w = self.word(offset).load(Relaxed);
        match size {
            4 => w,
            2 => w >> (8 * (offset & 2)) & 0xffff,
            _ => w >> (8 * (offset & 3)) & 0xff,
        }
    }

    /// Stores an aligned value of 1, 2 or 4 bytes.
    #[inline(always)]
    pub(crate) fn store(&self, offset: usize, size: usize, v: u32) {
        let w = self.word(offset);
        if size == 4 {
            w.store(v, Relaxed);
            return;
        }
        let (shift, mask) = if size == 2 { (8 * (offset & 2), 0xffff) } else { (8 * (offset & 3), 0xff) };
        let mut old = w.load(Relaxed);
        while let Err(now) =
            w.compare_exchange_weak(old, old & !(mask << shift) | (v & mask) << shift, Relaxed, Relaxed)
        {
            old = now;
        }
    }

    /// Copies bytes out; any alignment.
    pub(crate) fn read_bytes(&self, offset: usize, out: &mut [u8]) {
        for (k, b) in out.iter_mut().enumerate() {
            *b = self.load(offset + k, 1) as u8;
        }
    }

    /// Whether all of `size` bytes at `offset` hold values.
    #[inline(always)]
    pub(crate) fn is_written(&self, offset: usize, size: usize) -> bool {
        let Some(w) = &self.written else { return true };
        if size >= 4 && offset & 3 == 0 {
            return w[offset >> 2..(offset + size).div_ceil(4)].iter().all(|m| m.load(Relaxed) == 15);
        }
        (offset..offset + size).all(|o| w[o >> 2].load(Relaxed) >> (o & 3) & 1 == 1)
    }

    #[inline(always)]
    pub(crate) fn mark_written(&self, offset: usize, size: usize) {
        let Some(w) = &self.written else { return };
        if size >= 4 && offset & 3 == 0 && size & 3 == 0 {
            for m in &w[offset >> 2..(offset + size) >> 2] {
                m.store(15, Relaxed);
            }
            return;
        }
        for o in offset..offset + size {
            w[o >> 2].fetch_or(1 << (o & 3), Relaxed);
        }
    }

    /// Bytes never written.
    pub(crate) fn unwritten(&self) -> u64 {
        let Some(w) = &self.written else { return 0 };
        (0..self.len).filter(|o| w[o >> 2].load(Relaxed) >> (o & 3) & 1 == 0).count() as u64
    }

    /// State to restore with [`Self::restore`].
    pub(crate) fn snapshot(&self) -> (Vec<u32>, Vec<u8>) {
        let words = self.words.iter().map(|w| w.load(Relaxed)).collect();
        (words, self.written.iter().flat_map(|w| w.iter().map(|m| m.load(Relaxed))).collect())
    }

    pub(crate) fn restore(&self, (words, written): &(Vec<u32>, Vec<u8>)) {
        for (w, v) in self.words.iter().zip(words) {
            w.store(*v, Relaxed);
        }
        for (w, v) in self.written.iter().flat_map(|w| w.iter()).zip(written) {
            w.store(*v, Relaxed);
        }
    }
}

/// The buffers a kernel can reach.
///
/// Addresses given to kernels carry the buffer, so an access outside is reported with the buffer's name even when it
/// would have hit another buffer on a device. Buffers start on 256-byte boundaries.
#[derive(Debug, Default)]
pub struct Memory {
    pub(crate) buffers: Vec<Buffer>,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer with its initial bytes.
    pub fn add(&mut self, name: impl Into<String>, bytes: &[u8], access: Access) -> BufferId {
        self.buffers.push(Buffer::new(name.into(), bytes, access));
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a zeroed [`Access::Out`] buffer of `len` bytes.
    pub fn add_output(&mut self, name: impl Into<String>, len: usize) -> BufferId {
        self.add(name, &vec![0; len], Access::Out)
    }

    /// Current bytes of a buffer.
    pub fn bytes(&self, id: BufferId) -> Vec<u8> {
        self.buffers[id.0].bytes()
    }

    /// Replaces the bytes of a buffer; extra bytes are ignored.
    pub fn set_bytes(&mut self, id: BufferId, bytes: &[u8]) {
        self.buffers[id.0].set_bytes(bytes);
    }

    /// Name of a buffer.
    pub fn name(&self, id: BufferId) -> &str {
        &self.buffers[id.0].name
    }

    /// What the kernel may do with a buffer.
    pub fn access(&self, id: BufferId) -> Access {
        self.buffers[id.0].access
    }

    /// Bytes of an [`Access::Out`] buffer that nothing has written.
    pub fn unwritten(&self, id: BufferId) -> u64 {
        self.buffers[id.0].unwritten()
    }

    /// All buffers in the order they were added.
    pub fn ids(&self) -> impl Iterator<Item = BufferId> {
        (0..self.buffers.len()).map(BufferId)
    }

    /// Address that the kernel sees for a byte of a buffer.
    pub fn address(&self, id: BufferId, offset: u64) -> u64 {
        window_base(FIRST_WINDOW + id.0 as u64).wrapping_add(offset)
    }
}
