//! Philox4x32-10 and the draw of a token, written from their definitions and not from the engine.

/// CONTRACT: key = seed words, counter = (position of the token decided, purpose, position of the anchor, 0).
pub fn coin(seed: u64, position: usize, purpose: u32, anchor: usize) -> f64 {
    let (mut k0, mut k1) = (seed as u32, (seed >> 32) as u32);
    let mut x = [position as u32, purpose, anchor as u32, 0];
    for _ in 0..10 {
        let a = 0xD251_1F53u64 * u64::from(x[0]);
        let b = 0xCD9E_8D57u64 * u64::from(x[2]);
        x = [(b >> 32) as u32 ^ x[1] ^ k0, b as u32, (a >> 32) as u32 ^ x[3] ^ k1, a as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    f64::from(x[0] >> 8) / 16_777_216.0
}

/// Temperature, then top-k renormalised, then top-p renormalised; the lower id goes first among equals.
pub fn law(logits: &[f64], temperature: f64, top_k: i32, top_p: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    if top_k > 0 {
        order.truncate(top_k as usize);
    }
    let top = logits[order[0]] / temperature;
    let mass = |v: usize| (logits[v] / temperature - top).exp();
    let total: f64 = order.iter().map(|v| mass(*v)).sum();
    let mut before = 0.0;
    let mut kept = Vec::new();
    for v in order {
        let p = mass(v) / total;
        if top_p < 1.0 && before > top_p {
            break;
        }
        kept.push((v, p));
        before += p;
    }
    let total: f64 = kept.iter().map(|(_, p)| p).sum();
    let mut out = vec![0.0; logits.len()];
    for (v, p) in kept {
        out[v] = p / total;
    }
    out
}

/// The smallest id whose cumulative mass exceeds the coin's share.
pub fn draw(law: &[f64], coin: f64) -> usize {
    let total: f64 = law.iter().sum();
    let mut sum = 0.0;
    for (v, p) in law.iter().enumerate() {
        sum += p;
        if sum > coin * total {
            return v;
        }
    }
    law.len() - 1
}
