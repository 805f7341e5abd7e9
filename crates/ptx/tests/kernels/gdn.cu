// Gated delta rule, step by step: a thread holds one value column of the 128x128 state in registers.
typedef unsigned short u16; typedef unsigned int u32;
__device__ __forceinline__ float f(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u16 bf16(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }

extern "C" __global__ void __launch_bounds__(128) gdn(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v, const float* __restrict__ a, const float* __restrict__ b,
    const float* __restrict__ A_log, const float* __restrict__ dt, float* __restrict__ state, u16* __restrict__ o, int T, int Hk, int Hv) {
  __shared__ float sq[128], sk[128], norm[8];
  const int h = blockIdx.x, n = blockIdx.y, c = threadIdx.x, hk = h / (Hv / Hk), lane = c & 31, w = c >> 5;
  float S[128];
  float* st = state + ((size_t)n * Hv + h) * 128 * 128;
#pragma unroll
  for (int i = 0; i < 128; ++i) S[i] = st[i * 128 + c]; // @state
  for (int t = 0; t < T; ++t) {
    const size_t tk = ((size_t)n * T + t) * Hk + hk, tv = ((size_t)n * T + t) * Hv + h;
    float qf = f(q[tk * 128 + c]), kf = f(k[tk * 128 + c]), q2 = qf * qf, k2 = kf * kf; // @qk
#pragma unroll
    for (int s = 16; s; s >>= 1) { q2 += __shfl_xor_sync(~0u, q2, s); k2 += __shfl_xor_sync(~0u, k2, s); }
    if (lane == 0) { norm[w] = q2; norm[4 + w] = k2; } // @norm
    __syncthreads(); // @sync1
    sq[c] = qf * rsqrtf(norm[0] + norm[1] + norm[2] + norm[3] + 1e-6f) * 0.08838834764831845f; // @sq
    sk[c] = kf * rsqrtf(norm[4] + norm[5] + norm[6] + norm[7] + 1e-6f); // @sk
    __syncthreads(); // @sync2
    float x = a[tv] + dt[h], soft = x > 20.f ? x : log1pf(expf(x));
    float decay = expf(-expf(A_log[h]) * soft), beta = 1.f / (1.f + expf(-b[tv])), kv = 0.f;
#pragma unroll
    for (int i = 0; i < 128; ++i) { S[i] *= decay; kv = fmaf(sk[i], S[i], kv); } // @read
    float delta = (f(v[tv * 128 + c]) - kv) * beta, out = 0.f;
#pragma unroll
    for (int i = 0; i < 128; ++i) { S[i] = fmaf(sk[i], delta, S[i]); out = fmaf(sq[i], S[i], out); } // @update
    o[tv * 128 + c] = bf16(out); // @out
    __syncthreads(); // @sync3
  }
#pragma unroll
  for (int i = 0; i < 128; ++i) st[i * 128 + c] = S[i]; // @final
}
