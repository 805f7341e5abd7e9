// Decode attention over paged keys and values, split over the context, and the merge of the splits. One warp a query head.
typedef unsigned short u16; typedef unsigned int u32;
#define D 128
#define PAGE 16
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u16 bf16(float a) { u16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
#define NONE __int_as_float(0xff800000)

extern "C" __global__ void __launch_bounds__(256) attn_split(const u16* __restrict__ q, const u16* __restrict__ kc, const u16* __restrict__ vc, const int* __restrict__ page, const int* __restrict__ lens,
    float* __restrict__ po, float* __restrict__ pm, float* __restrict__ pl, int heads, int group, int pages, int chunk, float scale) {
  const int split = blockIdx.x, h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x & 31, g = threadIdx.x >> 5;
  const int H = heads * group, hq = h * group + g;
  const int len = lens[b], begin = split * chunk, end = min(len, begin + chunk); // @end
  const uint2 qv = *(const uint2*)(q + ((size_t)b * H + hq) * D + lane * 4);
  float m = NONE, l = 0.f, o0 = 0, o1 = 0, o2 = 0, o3 = 0;
  for (int t = begin; t < end; ++t) {
    const size_t at = (((size_t)page[b * pages + t / PAGE] * PAGE + t % PAGE) * heads + h) * D + lane * 4; // @page
    uint2 kv = *(const uint2*)(kc + at); // @k
    float s = low(qv.x) * low(kv.x) + high(qv.x) * high(kv.x) + low(qv.y) * low(kv.y) + high(qv.y) * high(kv.y);
#pragma unroll
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o); // @shfl
    s *= scale * 1.4426950408889634f;
    float n = fmaxf(m, s), a = exp2f(m - n), p = exp2f(s - n);
    uint2 vv = *(const uint2*)(vc + at);
    o0 = o0 * a + p * low(vv.x); o1 = o1 * a + p * high(vv.x); o2 = o2 * a + p * low(vv.y); o3 = o3 * a + p * high(vv.y);
    l = l * a + p; m = n;
  }
  const size_t at = ((size_t)b * H + hq) * gridDim.x + split;
  *(float4*)(po + at * D + lane * 4) = make_float4(o0, o1, o2, o3); // @po
  if (lane == 0) { pm[at] = m; pl[at] = l; } // @pm
}

extern "C" __global__ void attn_merge(const float* __restrict__ po, const float* __restrict__ pm, const float* __restrict__ pl, u16* __restrict__ out, int S) {
  const size_t r = blockIdx.x; const int d = threadIdx.x;
  float m = NONE, l = 0, o = 0;
  for (int s = 0; s < S; ++s) m = fmaxf(m, pm[r * S + s]);
  for (int s = 0; s < S; ++s) {
    float w = m == NONE ? 0.f : exp2f(pm[r * S + s] - m);
    l += w * pl[r * S + s]; o += w * po[(r * S + s) * D + d];
  }
  out[r * D + d] = bf16(l > 0 ? o / l : 0.f);
}
