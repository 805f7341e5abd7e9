//! Copies of table rows.

use super::super::simd::Real;

/// `y[i] = table[ids[i]]` for rows of `width` elements.
///
/// # Panics
/// If an id is outside the table or `y` is not `[ids, width]`.
pub fn gather_rows<T: Real>(table: &[T], width: usize, ids: &[u32], y: &mut [T]) {
    assert_eq!(y.len(), ids.len() * width, "result is not [ids, width]");
    for (i, id) in ids.iter().enumerate() {
        y[i * width..][..width].copy_from_slice(&table[*id as usize * width..][..width]);
    }
}

/// [`gather_rows`] from a table of bf16 bits, widened exactly.
///
/// # Panics
/// If an id is outside the table or `y` is not `[ids, width]`.
pub fn gather_rows_bf16<T: Real>(table: &[u16], width: usize, ids: &[u32], y: &mut [T]) {
    assert_eq!(y.len(), ids.len() * width, "result is not [ids, width]");
    for (i, id) in ids.iter().enumerate() {
        let row = &table[*id as usize * width..][..width];
        for (y, bits) in y[i * width..][..width].iter_mut().zip(row) {
            *y = T::from_f64(f64::from(f32::from_bits(u32::from(*bits) << 16)));
        }
    }
}
