"""Triton kernels whose PTX the interpreter's tests run: code from a compiler this project did not write.

Run `python kernels.py` with triton 3.9.0 (no GPU needed) to rewrite ../data/triton/*.ptx. The stored files keep Triton's
text; only debug sections and source positions are left out.
"""
import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def rms(x, w, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    v = tl.load(x + row * n + cols, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(w + cols, mask=mask, other=0.0).to(tl.float32)
    s = tl.sum(v * v, axis=0) / n
    tl.store(y + row * n + cols, (v * tl.rsqrt(s + eps) * g).to(tl.bfloat16), mask=mask)


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = a + m[:, None] * K + k[None, :]
    pb = b + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, K, BK):
        x = tl.load(pa, mask=(m[:, None] < M) & (k[None, :] + i < K), other=0.0)
        y = tl.load(pb, mask=(n[None, :] < N) & (k[:, None] + i < K), other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK
    pc = c + m[:, None] * N + n[None, :]
    tl.store(pc, acc.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def attn(q, k, v, o, L, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * L * D
    m = start + tl.arange(0, BM)
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    x = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < L, other=0.0)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for i in range(0, tl.minimum(start + BM, L), BN):
        rows = i + n
        kk = tl.load(k + head + rows[None, :] * D + d[:, None], mask=rows[None, :] < L, other=0.0)
        s = tl.dot(x, kk) * scale
        s = tl.where((m[:, None] >= rows[None, :]) & (rows[None, :] < L), s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        a = tl.exp2(top - new)
        total = total * a + tl.sum(p, 1)
        vv = tl.load(v + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < L, other=0.0)
        acc = tl.dot(p.to(tl.bfloat16), vv, acc * a[:, None])
        top = new
    tl.store(o + head + m[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16), mask=m[:, None] < L)


B = "*bf16"
KERNELS = {
    "rms": (rms, dict(x=B, w=B, y=B, n="i32", eps="fp32"), dict(BLOCK=2048), 4),
    "gemm": (gemm, dict(a=B, b=B, c=B, M="i32", N="i32", K="i32"), dict(BM=128, BN=128, BK=64), 8),
    "attn": (attn, dict(q=B, k=B, v=B, o=B, L="i32", scale="fp32"), dict(BM=64, BN=64, D=128), 4),
}


def strip(ptx):
    """Without debug sections and source positions."""
    ptx = re.sub(r"\.section\s+\.debug\w*\s*\{.*?\n\t\}", "", ptx, flags=re.S)
    lines = [l for l in ptx.splitlines() if not re.match(r"\s*\.(loc|file)\s", l)]
    return "\n".join(re.sub(r"\s*// .*\.py:.*$", "", l).rstrip() for l in lines if l.strip()) + "\n"


def main():
    out = pathlib.Path(__file__).resolve().parent.parent / "data" / "triton"
    out.mkdir(parents=True, exist_ok=True)
    for name, (fn, signature, constants, warps) in KERNELS.items():
        names = list(signature) + list(constants)
        full = {**signature, **{k: "constexpr" for k in constants}}
        values = {(names.index(k),): v for k, v in constants.items()}
        attrs = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t != "fp32"}
        for cc in (80, 90):
            source = ASTSource(fn=fn, signature=full, constexprs=values, attrs=attrs)
            k = triton.compile(source, target=GPUTarget("cuda", cc, 32), options={"num_warps": warps})
            text = f"// Made by kernels.py with triton {triton.__version__}; shared memory {k.metadata.shared} bytes.\n"
            (out / f"{name}.sm_{cc}.ptx").write_text(text + strip(k.asm["ptx"]))
            print(name, cc, k.metadata.shared, k.metadata.name)


if __name__ == "__main__":
    main()
